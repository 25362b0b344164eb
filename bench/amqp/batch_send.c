/*
 * batch_send - sends events in batches (docs/batched-sends.md) and counts as amqp_load does.
 *
 *   batch_send --url amqp://host:port --address A --count N [--size BYTES] [--connections C] [--window EVENTS]
 *              [--batch-bytes BYTES] [--run-id N] [--timeout S] [--partitions P]
 *
 * Connection i sends to partition i modulo P, or to no partition in particular without --partitions. At most
 * --window events of a connection have no outcome; a batch has at most --batch-bytes, and at most a quarter
 * of the window. One thread, one JSON object on stdout; exit status 0 only when every event was accepted.
 *
 * The Proton engine cannot write a message-format. So the format follows in the delivery tag, and before a
 * transfer goes out `patch` moves it into its field: `a0 0c TAG FORMAT 43` and `a0 08 TAG 70 FORMAT` have
 * the same length.
 */
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "payload.h"

enum { MAX_CONNS = 64, TAG = 8, FORMATTED = 12, OUT_MAX = 1 << 20 };
static const uint32_t BATCH_FORMAT = 0x80013700;
static const char DURABLE[] = "\x00\x53\x70\xc0\x02\x01\x41";
static const char SIZES[] = "amqp-streams:sizes";

typedef struct {
  int index, fd;
  bool closed;
  pn_connection_driver_t driver;
  pn_link_t *link;
  char *out;                                 /* what goes out: [done, whole) is patched, [whole, end) is not yet */
  size_t done, whole, end, cap;
  long unsettled, share, sent, accepted;
} conn_t;

static const char *url = "amqp://127.0.0.1:5672", *address;
static long count = 100000, window_ = 10000, batch_bytes = 256 << 10;
static size_t size = 100;
static int connections = 1, partitions;
static uint32_t run_id = 1;
static double timeout_s = 60;
static conn_t conns[MAX_CONNS];
static char error_text[512], *batch;
static long accepted;
static uint64_t next_seq;
static double first, last;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void complain(const char *what, const char *why) {
  if (!error_text[0]) snprintf(error_text, sizeof(error_text), "%s: %s", what, why ? why : "");
}

static void report(const char *what, pn_condition_t *c) {
  if (c && pn_condition_is_set(c)) complain(pn_condition_get_name(c), pn_condition_get_description(c));
  complain(what, "by the peer");
}

static char *be32(char *p, size_t v) {
  p[0] = (char)(v >> 24); p[1] = (char)(v >> 16); p[2] = (char)(v >> 8); p[3] = (char)v;
  return p + 4;
}

static uint32_t from_be32(const char *p) {
  const unsigned char *u = (const unsigned char *)p;
  return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* ---- a batch ------------------------------------------------------------- */

static size_t head_bytes(void) { return sizeof(DURABLE) - 1 + (size < 256 ? 5 : 8); }

/* One batch of n events into `batch`; returns its bytes. All events have one size. */
static size_t build(conn_t *c, long n, double at) {
  size_t message = head_bytes() + size, array = 5 + 4 * (size_t)n;
  char *p = batch;
  long i;
  memcpy(p, "\x00\x53\x71\xd1", 4);
  p = be32(p + 4, 4 + 2 + sizeof(SIZES) - 1 + 1 + 4 + array);
  p = be32(p, 2);
  *p++ = (char)0xa3; *p++ = sizeof(SIZES) - 1;
  memcpy(p, SIZES, sizeof(SIZES) - 1); p += sizeof(SIZES) - 1;
  *p++ = (char)0xf0;
  p = be32(be32(p, array), (size_t)n);
  *p++ = 0x70;
  for (i = 0; i < n; ++i) p = be32(p, message);
  for (i = 0; i < n; ++i) {
    memcpy(p, "\x00\x53\x75\xb0", 4);
    p = be32(p + 4, message);
    memcpy(p, DURABLE, sizeof(DURABLE) - 1); p += sizeof(DURABLE) - 1;
    memcpy(p, "\x00\x53\x75", 3); p += 3;
    if (size < 256) { *p++ = (char)0xa0; *p++ = (char)size; }
    else { *p++ = (char)0xb0; p = be32(p, size); }
    payload_fill(p, size, run_id, next_seq++, (uint32_t)c->index, (uint64_t)(at * 1e9));
    p += size;
  }
  return (size_t)(p - batch);
}

static void pump(conn_t *c) {
  long most = batch_bytes / (long)(head_bytes() + size + 12);
  if (most > window_ / 4) most = window_ / 4;   /* so that the peer never waits for the next batch */
  if (most < 1) most = 1;
  while (c->sent < c->share && pn_link_credit(c->link) > 0 && c->end - c->done < OUT_MAX) {
    long n = c->share - c->sent;
    char tag[FORMATTED];
    double at = now();
    size_t bytes;
    if (n > most) n = most;
    if (n > window_) n = window_;
    if (c->unsettled + n > window_) return;
    bytes = build(c, n, at);
    put_u64(tag, next_seq);
    be32(tag + TAG, BATCH_FORMAT);
    pn_delivery_set_context(pn_delivery(c->link, pn_dtag(tag, FORMATTED)), (void *)(intptr_t)n);
    pn_link_send(c->link, batch, bytes);
    pn_link_advance(c->link);
    c->unsettled += n;
    c->sent += n;
    if (first == 0) first = at;
  }
}

static void on_outcome(conn_t *c, pn_delivery_t *d) {
  long n = (long)(intptr_t)pn_delivery_get_context(d);
  uint64_t state = pn_delivery_remote_state(d);
  if (!state && !pn_delivery_settled(d)) return;
  if (state == PN_ACCEPTED) { accepted += n; c->accepted += n; last = now(); }
  else if (state == PN_REJECTED) report("rejected", pn_disposition_condition(pn_delivery_remote(d)));
  else complain("outcome", "not accepted");
  c->unsettled -= n;
  pn_delivery_settle(d);
}

/* ---- a connection -------------------------------------------------------- */

static void dial(conn_t *c) {
  char host[256], *colon;
  struct addrinfo *found, hints = { .ai_socktype = SOCK_STREAM };
  int one = 1;
  snprintf(host, sizeof(host), "%s", strncmp(url, "amqp://", 7) ? url : url + 7);
  if ((colon = strrchr(host, ':'))) *colon = 0;
  if (getaddrinfo(host, colon ? colon + 1 : "5672", &hints, &found)) { complain("host", host); return; }
  c->fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (connect(c->fd, found->ai_addr, found->ai_addrlen)) complain("connect", strerror(errno));
  freeaddrinfo(found);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static void open_link(conn_t *c) {
  char name[64], partition[16];
  pn_connection_t *k = c->driver.connection;
  pn_session_t *s;
  pn_terminus_t *t;
  snprintf(name, sizeof(name), "batch-send-%d-%d", (int)getpid(), c->index);
  pn_connection_set_container(k, name);
  pn_sasl_allowed_mechs(pn_sasl(c->driver.transport), "ANONYMOUS");
  pn_connection_open(k);
  s = pn_session(k);
  pn_session_open(s);
  c->link = pn_sender(s, name);
  t = pn_link_target(c->link);
  pn_terminus_set_address(t, address);
  pn_data_put_symbol(pn_terminus_capabilities(t), pn_bytes(26, "amqp-streams:batched-sends"));
  pn_link_set_snd_settle_mode(c->link, PN_SND_UNSETTLED);
  if (partitions) {
    pn_data_t *p = pn_link_properties(c->link);
    snprintf(partition, sizeof(partition), "%d", c->index % partitions);
    pn_data_put_map(p);
    pn_data_enter(p);
    pn_data_put_symbol(p, pn_bytes(23, "event-streams-partition"));
    pn_data_put_symbol(p, pn_bytes(strlen(partition), partition));
    pn_data_exit(p);
  }
  pn_link_open(c->link);
}

static void handle(conn_t *c, pn_event_t *e) {
  switch (pn_event_type(e)) {
    case PN_LINK_FLOW: pump(c); break;
    case PN_DELIVERY: on_outcome(c, pn_event_delivery(e)); pump(c); break;
    case PN_LINK_REMOTE_CLOSE: case PN_LINK_REMOTE_DETACH:
      report("link closed", pn_link_remote_condition(pn_event_link(e))); break;
    case PN_SESSION_REMOTE_CLOSE: complain("session closed", "by the peer"); break;
    case PN_CONNECTION_REMOTE_CLOSE:
      report("connection closed", pn_connection_remote_condition(c->driver.connection)); break;
    case PN_TRANSPORT_CLOSED: report("connection lost", pn_transport_condition(c->driver.transport)); break;
    default: break;
  }
}

/* Move the message-format of each whole transfer frame into its field. */
static void patch(conn_t *c) {
  while (c->end - c->whole >= 8) {
    char *f = c->out + c->whole;
    size_t n = from_be32(f), at;
    if (!memcmp(f, "AMQP", 4)) { c->whole += 8; continue; }
    if (c->end - c->whole < n) return;
    /* 8 bytes of frame header, then 00 53 14 and the list: handle, delivery-id, delivery-tag, format */
    if (n > 40 && f[5] == 0 && f[9] == 0x53 && f[10] == 0x14) {
      for (at = 11; at < 40; ++at)
        if ((unsigned char)f[at] == 0xa0 && f[at + 1] == FORMATTED && f[at + 14] == 0x43) {
          char format[4];
          memcpy(format, f + at + 2 + TAG, 4);
          f[at + 1] = TAG;
          f[at + 2 + TAG] = 0x70;
          memcpy(f + at + 3 + TAG, format, 4);
          break;
        }
    }
    c->whole += n;
  }
}

static void write_out(conn_t *c) {
  for (;;) {
    pn_bytes_t b = c->end - c->done < OUT_MAX ? pn_connection_driver_write_buffer(&c->driver) : pn_bytes(0, NULL);
    ssize_t n;
    if (b.size) {
      if (c->done && c->end + b.size > c->cap) {
        memmove(c->out, c->out + c->done, c->end - c->done);
        c->end -= c->done; c->whole -= c->done; c->done = 0;
      }
      if (c->end + b.size > c->cap) { c->cap = 2 * (c->end + b.size); c->out = realloc(c->out, c->cap); }
      memcpy(c->out + c->end, b.start, b.size);
      c->end += b.size;
      pn_connection_driver_write_done(&c->driver, b.size);
      patch(c);
    }
    if (c->whole == c->done) { if (b.size) continue; return; }
    n = send(c->fd, c->out + c->done, c->whole - c->done, MSG_NOSIGNAL);
    if (n < 0) { if (errno != EAGAIN) complain("write", strerror(errno)); return; }
    c->done += (size_t)n;
    if (c->done == c->end) c->done = c->whole = c->end = 0;
  }
}

static void read_in(conn_t *c) {
  pn_rwbytes_t r = pn_connection_driver_read_buffer(&c->driver);
  ssize_t n = r.size ? recv(c->fd, r.start, r.size, 0) : 0;
  if (n > 0) pn_connection_driver_read_done(&c->driver, (size_t)n);
  else if (n == 0 && r.size) complain("connection", "ended by the peer");
}

static void turn(conn_t *c) {
  pn_event_t *e;
  while ((e = pn_connection_driver_next_event(&c->driver))) handle(c, e);
  pump(c);
  write_out(c);
  while ((e = pn_connection_driver_next_event(&c->driver))) handle(c, e);
}

int main(int argc, char **argv) {
  struct pollfd polled[MAX_CONNS];
  struct rusage ru;
  double end, seconds;
  int i, ok;
  for (i = 1; i + 1 < argc; i += 2) {
    const char *k = argv[i], *v = argv[i + 1];
    if (!strcmp(k, "--url")) url = v;
    else if (!strcmp(k, "--address")) address = v;
    else if (!strcmp(k, "--count")) count = atol(v);
    else if (!strcmp(k, "--size")) size = (size_t)atol(v);
    else if (!strcmp(k, "--connections")) connections = atoi(v);
    else if (!strcmp(k, "--window")) window_ = atol(v);
    else if (!strcmp(k, "--batch-bytes")) batch_bytes = atol(v);
    else if (!strcmp(k, "--partitions")) partitions = atoi(v);
    else if (!strcmp(k, "--run-id")) run_id = (uint32_t)strtoul(v, NULL, 10);
    else if (!strcmp(k, "--timeout")) timeout_s = atof(v);
    else { fprintf(stderr, "batch_send: no option %s\n", k); return 2; }
  }
  if (!address || size < HDR || connections < 1 || connections > MAX_CONNS || count < 1 || window_ < 1) {
    fprintf(stderr, "batch_send: --address; --size of at least %d; --connections 1..%d\n", HDR, MAX_CONNS);
    return 2;
  }
  payload_pattern(size);
  batch = malloc((size_t)batch_bytes + (head_bytes() + size + 12) + 256);
  for (i = 0; i < connections; ++i) {
    conn_t *c = &conns[i];
    c->index = i;
    c->share = count / connections + (i < count % connections);
    pn_connection_driver_init(&c->driver, NULL, NULL);
    dial(c);
    open_link(c);
  }
  end = now() + timeout_s;
  while (accepted < count && !error_text[0]) {
    if (now() > end) complain("timeout", "not all were accepted in time");
    for (i = 0; i < connections; ++i) {
      conn_t *c = &conns[i];
      turn(c);
      polled[i] = (struct pollfd){ .fd = c->fd, .events = (short)(POLLIN | (c->whole > c->done ? POLLOUT : 0)) };
    }
    if (poll(polled, (nfds_t)connections, 20) < 0 && errno != EINTR) complain("poll", strerror(errno));
    for (i = 0; i < connections; ++i)
      if (polled[i].revents) read_in(&conns[i]);
  }
  seconds = last - first;
  ok = accepted == count && !error_text[0];
  getrusage(RUSAGE_SELF, &ru);
  for (i = 0; error_text[i]; ++i)
    if (error_text[i] == '"' || error_text[i] == '\\' || (unsigned char)error_text[i] < 0x20) error_text[i] = '\'';
  printf("{\"mode\": \"send\", \"ok\": %s, \"size\": %zu, \"connections\": %d, \"count\": %ld, \"messages\": %ld, "
         "\"accepted\": %ld, \"seconds\": %.6f, \"msgs_per_s\": %.1f, \"client_cpu_s\": %.3f, \"error\": %s%s%s}\n",
         ok ? "true" : "false", size, connections, count, accepted, accepted, seconds,
         seconds > 0 ? (double)accepted / seconds : 0,
         (double)ru.ru_utime.tv_sec + (double)ru.ru_utime.tv_usec / 1e6 +
         (double)ru.ru_stime.tv_sec + (double)ru.ru_stime.tv_usec / 1e6,
         error_text[0] ? "\"" : "", error_text[0] ? error_text : "null", error_text[0] ? "\"" : "");
  return !ok;
}
