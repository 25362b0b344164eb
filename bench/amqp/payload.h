/*
 * What a message of amqp_load and batch_send carries, --size bytes:
 *
 *   0  "AQL1"   4  run id (u32)   8  sequence (u64)   16  send time ns (u64)
 *   24 producer (u32)   28  size (u32)   32..  pseudo-random bytes that depend
 *   on the sequence
 */
#ifndef PAYLOAD_H
#define PAYLOAD_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD_MARK "AQL1"
enum { HDR = 32, PATTERN = 4096 };

static char *pattern;

static inline void put_u32(char *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put_u64(char *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint32_t get_u32(const char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t get_u64(const char *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline void payload_pattern(size_t size) {
  uint64_t x = 88172645463325252ull;
  size_t i, n = PATTERN + size + 1;
  pattern = malloc(n);
  for (i = 0; i < n; ++i) {
    x ^= x << 13; x ^= x >> 7; x ^= x << 17;
    pattern[i] = (char)(x >> 24);
  }
}

static inline void payload_fill(char *p, size_t size, uint32_t run_id, uint64_t seq, uint32_t producer, uint64_t at_ns) {
  memcpy(p, PAYLOAD_MARK, 4);
  put_u32(p + 4, run_id);
  put_u64(p + 8, seq);
  put_u64(p + 16, at_ns);
  put_u32(p + 24, producer);
  put_u32(p + 28, (uint32_t)size);
  memcpy(p + HDR, pattern + (seq * 31) % PATTERN, size - HDR);
}

static inline bool payload_intact(const char *p, size_t size, uint64_t seq) {
  return memcmp(p + HDR, pattern + (seq * 31) % PATTERN, size - HDR) == 0;
}
#endif
