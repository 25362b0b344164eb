"""All names that are sent on the wire. No other module contains them as text.

From Event Stream Extensions for AMQP 1.0 (csd01), AMQP 1.0 core, Addressing, Anonymous Terminus, AMQP
Management.
"""

from typing import Final

# -- Event Streams 3.1: connection capability
CAPABILITY_EVENT_STREAMS: Final = "AMQP_EVENT_STREAMS_V1_0"
CAPABILITY_ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"

# -- Event Streams 4.6: link properties and annotations
PARTITION: Final = "event-streams-partition"
CONSUMER_GROUP: Final = "event-streams-consumer-group"
EPOCH: Final = "event-streams-epoch"
SOURCE_PARTITION: Final = "event-streams-source-partition"
ASSOCIATED_PARTITIONS: Final = "event-streams-associated-partitions-changed"
TARGET_PARTITION: Final = "event-streams-target-partition"
GROUP_KEY: Final = "event-streams-group-key"

# -- Event Streams 5.1: delivery annotations
OFFSET: Final = "event-streams-offset"
TIMESTAMP: Final = "event-streams-timestamp"
OFFSET_EARLIEST: Final = "@earliest"
OFFSET_LATEST: Final = "@latest"

# -- Event Streams 5.2: filters, by symbol and by code
FILTER_DELIVERY_ANNOTATIONS: Final = "amqp:event-streams-delivery-annotations-filter"
FILTER_DELIVERY_ANNOTATIONS_CODE: Final = 0x200
FILTER_SQL: Final = "amqp:event-streams-sql-filter"
FILTER_SQL_CODE: Final = 0x201

# -- Filter Expressions 1.0 (FILTEX): capabilities and filters (their codes are in filters/kinds.py)
CAPABILITY_FILTEX_SQL: Final = "AMQP_FILTEX_SQL_V1_0"
CAPABILITY_FILTEX_PROPERTIES: Final = "AMQP_FILTEX_PROP_V1_0"
CAPABILITY_FILTEX_GROUPS: Final = "AMQP_FILTEX_GROUP_V1_0"
FILTEX_ALL: Final = "amqp:all-filter"
FILTEX_ANY: Final = "amqp:any-filter"
FILTEX_NOT: Final = "amqp:not-filter"
FILTEX_TRUE: Final = "amqp:true-filter"
FILTEX_FALSE: Final = "amqp:false-filter"
FILTEX_SQL: Final = "amqp:sql-filter"
FILTEX_HEADER: Final = "amqp:header-filter"
FILTEX_DELIVERY_ANNOTATIONS: Final = "amqp:delivery-annotations-filter"
FILTEX_MESSAGE_ANNOTATIONS: Final = "amqp:message-annotations-filter"
FILTEX_PROPERTIES: Final = "amqp:properties-filter"
FILTEX_APPLICATION_PROPERTIES: Final = "amqp:application-properties-filter"
FILTEX_FOOTER: Final = "amqp:footer-filter"
# The JMS selector filter, under the name that Apache's clients send.
SELECTOR: Final = "apache.org:selector-filter:string"

# -- Event Streams 6: runtime information
INFO_SUFFIX: Final = "/$info"
INFO_PARTITIONS: Final = "partitions"
INFO_PARTITION: Final = "partition"
INFO_EARLIEST_OFFSET: Final = "earliest-offset"
INFO_LATEST_OFFSET: Final = "latest-offset"
# Extensions of this engine (section 6 leaves all other entries to the application).
INFO_EVENTS: Final = "event-count"
INFO_BYTES: Final = "bytes"
INFO_FIRST_TIMESTAMP: Final = "first-timestamp"
INFO_LAST_TIMESTAMP: Final = "last-timestamp"
INFO_STATE: Final = "state"
INFO_GAPS: Final = "offset-gaps"
INFO_OWNER: Final = "owner"
INFO_LOG: Final = "log"
INFO_INCARNATION: Final = "incarnation"
INFO_RETENTION_MS: Final = "retention-ms"
INFO_RETENTION_BYTES: Final = "retention-bytes"
SEGMENT_BYTES: Final = "segment-bytes"
SEGMENT_MS: Final = "segment-ms"
COMPRESSION: Final = "compression"
INFO_SYNC: Final = "sync"
# Annotation on the first event after retention overtook a reader: how many events it missed.
EVENTS_SKIPPED: Final = "event-streams-x-events-skipped"

# Property of this node's open: how many deliveries a link may leave unsettled before it gets no more.
UNSETTLED_MAX: Final = "amqp-streams:unsettled-max"
# Property of this node's open: the identity of its store. Nodes with the same logs have the same one.
STORE: Final = "amqp-streams:store"

# -- Batched deliveries, an extension of this engine (docs/batched-deliveries.md): capability of a source,
# link properties, annotations
CAPABILITY_BATCHED_DELIVERIES: Final = "amqp-streams:batched-deliveries"
BATCH_EVENTS: Final = "amqp-streams:batch-events"
BATCH_BYTES: Final = "amqp-streams:batch-bytes"
BATCH_FORMATS: Final = "amqp-streams:batch-formats"
BATCH_INCARNATION: Final = "amqp-streams:incarnation"
BATCH_OFFSETS: Final = "amqp-streams:offsets"
BATCH_TIMESTAMPS: Final = "amqp-streams:timestamps"
BATCH_SIZES: Final = "amqp-streams:sizes"
BATCH_MESSAGE_FORMATS: Final = "amqp-streams:message-formats"
BATCH_NEXT_OFFSET: Final = "amqp-streams:next-offset"

# -- Compressed batches in both directions: link property and annotation, annotation, link property
BATCH_COMPRESSION: Final = "amqp-streams:compression"
BATCH_UNCOMPRESSED_SIZE: Final = "amqp-streams:uncompressed-size"
BATCH_UNCOMPRESSED_BYTES: Final = "amqp-streams:uncompressed-bytes"

# -- Batched sends, an extension of this engine (docs/batched-sends.md): capability of a target, annotation
# of a batch, entry of an error's info, and the message-format of a batch, which is that of Event Hubs
CAPABILITY_BATCHED_SENDS: Final = "amqp-streams:batched-sends"
BATCH_RESUMES: Final = "amqp-streams:resumes"
EVENT_INDEX: Final = "amqp-streams:event-index"
BATCH_MESSAGE_FORMAT: Final = 0x80013700

# -- Idempotent producers, an extension of this engine (docs/idempotent-producers.md): capability of a target,
# link properties, annotation
CAPABILITY_IDEMPOTENT_PRODUCER: Final = "amqp-streams:idempotent-producer"
PRODUCER_ID: Final = "amqp-streams:producer-id"
PRODUCER_SEQUENCE: Final = "amqp-streams:producer-sequence"
SEQUENCE: Final = "x-opt-amqp-streams-sequence"

# -- Management
MANAGEMENT: Final = "$management"
LOG_TYPE: Final = "event-log"
CURSOR_TYPE: Final = "event-cursor"
GROUP_TYPE: Final = "event-consumer-group"
CONNECTION_TYPE: Final = "connection"
# The attributes of connections and of their links; others are those of cursors, below.
CONNECTIONS: Final = "connections"
CONNECTIONS_TOTAL: Final = "total"
CONNECTION_SEARCH: Final = "search"
CONNECTION_SORT: Final = "sort"
CONNECTION_REASON: Final = "reason"
CONNECTION_PEER: Final = "peer"
CONNECTION_PROTOCOL: Final = "protocol"
CONNECTION_TLS: Final = "tls"
CONNECTION_MECHANISM: Final = "mechanism"
CONNECTION_SINCE: Final = "since-ms"
CONNECTION_LINKS: Final = "links"
CONNECTION_PRODUCERS: Final = "producers"
CONNECTION_CONSUMERS: Final = "consumers"
CONNECTION_ATTACHED: Final = "attached"
CONNECTION_OWN: Final = "own"
CONNECTION_UNREAD: Final = "unread-bytes"
CONNECTION_HELD: Final = "held"
HELD_REASON: Final = "reason"
HELD_DETAIL: Final = "detail"
HELD_LINKS: Final = "links"
TRAFFIC_EVENTS_IN: Final = "events-in"
TRAFFIC_BYTES_IN: Final = "bytes-in"
TRAFFIC_EVENTS_OUT: Final = "events-out"
TRAFFIC_BYTES_OUT: Final = "bytes-out"
TRAFFIC_RATE: Final = "-per-second"
# The node as a whole: what READ of the type `node` returns.
NODE_TYPE: Final = "node"
NODE_PARTS: Final = "parts"
NODE_FIGURES: Final = "figures"
NODE_WARNINGS: Final = "warnings"
NODE_SETTINGS: Final = "settings"
NODE_CHANGES: Final = "changes"
NODE_RIGHTS: Final = "rights"
NODE_ADMINISTERS: Final = "administers"
NODE_LOG_RIGHTS: Final = "log-rights"
NODE_VERSION: Final = "version"
NODE_CONTAINER: Final = "container-id"
NODE_STORE: Final = "store"
NODE_DATA_DIR: Final = "data-dir"
NODE_STARTED: Final = "started-ms"
NODE_NOW: Final = "now-ms"
NODE_READY: Final = "ready"
NODE_NOT_READY: Final = "not-ready"
NODE_DISK_FREE: Final = "disk-free-bytes"
NODE_DISK_SIZE: Final = "disk-size-bytes"
NODE_DISK_RESERVE: Final = "disk-reserve-bytes"
NODE_MEMORY: Final = "memory-bytes"
NODE_DESCRIPTORS: Final = "descriptors"
NODE_COMMITS: Final = "recent-commits"
NODE_COMMIT_P50: Final = "commit-p50-seconds"
NODE_COMMIT_P99: Final = "commit-p99-seconds"
NODE_COMMIT_MOST: Final = "commit-max-seconds"
NODE_REQUEST_SECONDS: Final = "request-seconds"
NODE_LOGS: Final = "logs"
NODE_HOME_BUCKETS: Final = "home-buckets"
NODE_LIMITS: Final = "limits"
NODE_USED: Final = "used"
NODE_LIMIT: Final = "limit"
WARNING_CODE: Final = "code"
WARNING_TEXT: Final = "text"
WARNING_REMEDY: Final = "remedy"
WARNING_ERROR: Final = "error"
SETTING_VALUE: Final = "value"
SETTING_SOURCE: Final = "source"
CHANGE_AT: Final = "at-ms"
CHANGE_WHAT: Final = "what"
CHANGE_DETAILS: Final = "details"
# By what a list of connections can be ordered: texts and times ascending, numbers descending.
CONNECTION_SORTS: Final = (
    *(CONNECTION_SINCE, "user", CONNECTION_PEER, "container", CONNECTION_LINKS, CONNECTION_UNREAD),
    *(TRAFFIC_EVENTS_IN, TRAFFIC_BYTES_IN, TRAFFIC_EVENTS_OUT, TRAFFIC_BYTES_OUT),
    *(TRAFFIC_EVENTS_IN + TRAFFIC_RATE, TRAFFIC_BYTES_IN + TRAFFIC_RATE),
    *(TRAFFIC_EVENTS_OUT + TRAFFIC_RATE, TRAFFIC_BYTES_OUT + TRAFFIC_RATE),
)
LINK_ROLE: Final = "role"
LINK_ADDRESS: Final = "address"
LINK_CREDIT: Final = "credit"
LINK_UNSETTLED: Final = "unsettled"
LINK_EVENTS: Final = "events"
LINK_PARTITION_COUNT: Final = "partition-count"
# The attributes of cursors and groups.
CURSORS: Final = "cursors"
GROUPS: Final = "groups"
CURSOR_ID: Final = "id"
CURSOR_GROUP: Final = "group"
CURSOR_CONTAINER: Final = "container"
CURSOR_LINK: Final = "link"
CURSOR_USER: Final = "user"
CURSOR_ACTIVE: Final = "active"
CURSOR_WAITING: Final = "waiting"
CURSOR_UPDATED: Final = "updated-ms"
CURSOR_OFFSET: Final = "offset"
CURSOR_NEXT: Final = "position-next"
CURSOR_LAG: Final = "lag"
CURSOR_EPOCH: Final = "epoch"
CURSOR_MEMBER: Final = "member"
MEMBERS_KNOWN: Final = "members-known"
MEMBERS_REASON: Final = "members-reason"
# The start to which a cursor is reset: `offset` above, or one of these.
RESET_TIMESTAMP: Final = "timestamp"
RESET_POSITION: Final = "position"
# QUERY: `offset` and `count` select a part of the list (AMQP Management 1.0); `next` in the answer is where
# the next page begins. EXTENTS, an extension: the first and the next offset of each partition as numbers.
QUERY_OFFSET: Final = "offset"
QUERY_COUNT: Final = "count"
QUERY_NEXT: Final = "next"
QUERY_INCOMPLETE: Final = "incomplete"
EXTENTS: Final = "EXTENTS"
EXTENT_LOGS: Final = "logs"
EXTENT_NAMES_MAX: Final = 1000  # names in a list of one request
EXTENT_MISSING_OK: Final = "missing-ok"
EXTENT_EARLIEST: Final = "earliest"
EXTENT_NEXT: Final = "next"
EXTENT_FOUND: Final = "found"
EXTENT_EVENTS_OUT: Final = "events-out"
EXTENT_CONSUMERS: Final = "consumers"
EXTENT_GROUPS: Final = "groups"
OPERATION: Final = "operation"
TYPE: Final = "type"
NAME: Final = "name"
STATUS_CODES: Final = ("status-code", "statusCode")
STATUS_DESCRIPTIONS: Final = ("status-description", "statusDescription")

# -- AMQP 1.0 core 2.8.15-2.8.18: error conditions
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
LINK_DETACH_FORCED: Final = "amqp:link:detach-forced"
LINK_MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_REDIRECT: Final = "amqp:link:redirect"
LINK_STOLEN: Final = "amqp:link:stolen"

# -- AMQP 1.0 core 2.8.18: the info of a redirect. Apache's clients add the scheme.
REDIRECT_HOSTNAME: Final = "hostname"
REDIRECT_NETWORK_HOST: Final = "network-host"
REDIRECT_PORT: Final = "port"
REDIRECT_ADDRESS: Final = "address"
REDIRECT_SCHEME: Final = "scheme"
# An extension: the container-id in the node's configuration.
REDIRECT_CONTAINER: Final = "container-id"

# -- AMQP 1.0 core 3.4: outcomes
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
