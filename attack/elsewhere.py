"""What no attack of the tables covers: the test that does, or why there is nothing to attack.

A test is named `file::function`; `tests/attack/test_inventory.py` checks that it exists.
"""

from typing import Final

_RESOLVING: Final = "tests/knative_gateway/dispatcher/posting/test_resolving.py"
_CURSORS: Final = "tests/amqp_streams/node/test_cursors.py"
_PRODUCERS: Final = "tests/amqp_streams/storage/formats/test_producers.py"

_SILENT: Final = (
    "tests/knative_gateway/store/test_silent_database.py"
    "::test_a_database_that_does_not_answer_is_unavailable_until_it_does"
)

_BETWEEN_NODES: Final = "tests/amqp_streams/server/homes/test_peer_connection.py"

SHOWN_BY: Final = {
    "listener for nodes: garbage": f"{_BETWEEN_NODES}::test_other_protocols_are_cut_at_once",
    "listener for nodes: half requests": f"{_BETWEEN_NODES}::test_a_node_that_does_not_prove_in_time_is_cut",
    "listener for nodes: a slow body": f"{_BETWEEN_NODES}::test_a_node_that_does_not_prove_in_time_is_cut",
    "listener for nodes: a flood of small requests": (
        f"{_BETWEEN_NODES}::test_a_flood_is_not_read_faster_than_the_limit_and_others_are_served"
    ),
    "listener for nodes: unread replies": (
        f"{_BETWEEN_NODES}::test_a_node_that_never_reads_costs_bounded_memory_and_then_its_connection"
    ),
    "home at another node: silent": f"{_BETWEEN_NODES}::test_a_home_that_says_nothing_is_left",
    "home at another node: slow": (
        f"{_BETWEEN_NODES}::test_a_node_that_reads_slowly_gets_the_newest_answer_in_the_end"
    ),
    "home at another node: refusing": (
        "tests/amqp_streams/server/homes/test_peering.py"
        "::test_another_secret_is_refused_on_both_sides_with_one_line_and_without_the_secret"
    ),
    "home at another node: lying": (
        f"{_BETWEEN_NODES}::test_a_home_that_sends_the_proof_of_the_caller_back_is_refused"
    ),
    "DNS: silent": f"{_RESOLVING}::test_names_that_never_answer_delay_no_other_name",
    "DNS: slow": f"{_RESOLVING}::test_a_namespace_with_any_number_of_silent_names_delays_no_other_namespace",
    "DNS: refusing": f"{_RESOLVING}::test_a_failure_is_remembered_for_a_while",
    "DNS: lying": (
        "tests/knative_gateway/dispatcher/posting/test_sending.py"
        "::test_a_name_is_judged_by_the_address_it_has_just_now"
    ),
    "PostgreSQL: silent": _SILENT,
    "PostgreSQL: slow": _SILENT,
    "PostgreSQL: refusing": (
        "tests/knative_gateway/store/test_feed.py::test_the_store_works_again_after_all_connections_were_lost"
    ),
    "PostgreSQL: lying": (
        "tests/knative_gateway/store/test_database.py::test_a_refusal_of_the_database_is_unavailable"
    ),
    "database file: slow": (
        "tests/knative_gateway/store/test_database.py::test_a_write_after_one_that_does_not_end_fails_soon"
    ),
    "database file: lying": (
        "tests/knative_gateway/store/test_database.py::test_a_refusal_of_the_database_is_unavailable"
    ),
    "disk: refusing": "tests/acceptance/test_life.py::test_a_full_disk_refuses_producers_and_recovers",
    "disk: lying": (
        "tests/amqp_streams/storage/test_crashes.py"
        "::test_no_accepted_record_is_lost_or_changed_whatever_crashes_when"
    ),
    "node GET /console": (
        "tests/amqp_streams/server/test_console.py::test_a_node_serves_a_console_and_starts_it_again"
    ),
    "node kafka: readers": (
        "tests/amqp_streams/kafka/reading/test_reads.py::test_many_readers_of_one_partition_get_fair_shares"
    ),
    "node groups: cursor_flush_ms": (
        f"{_CURSORS}::test_a_kill_repeats_what_was_settled_since_the_last_flush_and_no_more"
    ),
    "node producers: expiry_ms": (
        f"{_PRODUCERS}::test_producers_that_have_been_away_for_too_long_are_forgotten"
    ),
    "node logs: retention_ms": "tests/amqp_streams/server/test_service.py::test_retention_runs_by_itself",
    "node logs: segment_ms": "tests/amqp_streams/server/test_service.py::test_retention_runs_by_itself",
    "node: shutdown_delay": (
        "tests/amqp_streams/server/test_run.py"
        "::test_a_node_that_stops_says_so_first_and_serves_on_for_the_delay"
    ),
}

NOT_POSSIBLE: Final = {
    "keys of tokens: silent": "the keys are local files: a read does not wait for a peer",
    "keys of tokens: slow": "the keys are local files, read at the start and at SIGHUP only",
    "log node: lying": (
        "the node is part of the product and of the same trust: its data directory has checksums"
    ),
    "node kafka: replicas": "the operator sets it; it is a number for topics that are created",
    "gateway logs: retention": "the node removes events by itself; no peer is waited for",
    "gateway: shutdown_delay": "the operator sets it; the gateway serves everything during the delay",
}

WITHOUT_PEER: Final = {
    "text": "bounds the length of a text in a log line, an error message or a status",
    "pause": "the product's own pause before it tries again, or between two looks; it waits for no peer",
    "cache": "bounds what is remembered to save work; when it is full, work is done again",
    "format": "bounds a number or a name of a request; a larger one is refused when it is read",
    "close": "bounds the time of a close, inside limits.drain",
    "workers": "a time or a size between the processes of one gateway, which no client reaches",
}
"""Why a constant needs no attack of its own."""

INSIDE: Final = {
    "amqp_streams.homes.reporting:SENT_MAX": "cache",
    "amqp_streams.homes.protocol.answers:_PARTITION_MAX": "format",
    "amqp_streams.homes.protocol.answers:_SYMBOL_CHARACTERS_MAX": "format",
    "amqp_streams.homes.protocol.answers:_WITHIN_MS_MAX": "format",
    "amqp_streams.homes.protocol.changes:_DESCRIPTION_CHARACTERS_MAX": "text",
    "amqp_streams.homes.protocol.changes:_STATUS_MAX": "format",
    "amqp_streams.homes.protocol.descriptions:_PARTITION_MAX": "format",
    "amqp_streams.homes.protocol.dialogue:_NAME_CHARACTERS_MAX": "format",
    "amqp_streams.homes.protocol.fields:_SHOWN_MAX": "text",
    "amqp_streams.homes.protocol.reports:NODE_CHARACTERS_MAX": "format",
    "amqp_streams.homes.protocol.reports:_PARTITION_MAX": "format",
    "amqp_streams.node.logs:_COMPARED_MAX": "text",
    "amqp_streams.node.logs:_NAME_CHARACTERS_MAX": "text",
    "amqp_streams.server.dispatch:CREDIT_MAX": "format",
    "amqp_streams.server.garbage:CHECK_S": "pause",
    "amqp_streams.server.homes.calling:REASONS_MAX": "text",
    "amqp_streams.server.homes.calling:RETRY_MAX_S": "pause",
    "amqp_streams.server.homes.calling:RETRY_S": "pause",
    "amqp_streams.server.homes.calling:STEADY_S": "pause",
    "amqp_streams.server.homes.joining:LEFT_S": "close",
    "amqp_streams.server.homes.peering:CLOSE_S": "close",
    "amqp_streams.server.homes.peering:LOOK_S": "pause",
    "amqp_streams.server.identity.guard:QUIET_MS": "pause",
    "amqp_streams.server.identity.guard:WITHOUT_SCRAM_MAX": "cache",
    "amqp_streams.server.identity.guard:_SHOWN_MAX": "text",
    "amqp_streams.server.limits.bucket:LITTLE_MS": "pause",
    "amqp_streams.server.limits.bucket:SLICE_MS": "pause",
    "amqp_streams.server.listening.listener:LINGER_S": "close",
    "amqp_streams.server.listening.sockets:TLS_SHUTDOWN_S": "close",
    "amqp_streams.server.observing.audit:_SHOWN_MAX": "text",
    "amqp_streams.server.observing.audit:_VALUES_MAX": "text",
    "amqp_streams.server.observing.metrics:_LABEL_MAX": "text",
    "amqp_streams.server.observing.status:CONSUMERS_MAX": "text",
    "amqp_streams.server.observing.status:GROUP_LAGS_MAX": "text",
    "amqp_streams.server.regular:TICK_S": "pause",
    "knative_gateway.api.app:RETRY_AFTER_S": "pause",
    "knative_gateway.api.definitions:_AGAIN_S": "pause",
    "knative_gateway.api.handlers:WARNING_CHARACTERS_MAX": "text",
    "knative_gateway.api.handlers:WATCHES_RETRY_S": "pause",
    "knative_gateway.api.reading:MANAGER_CHARACTERS_MAX": "format",
    "knative_gateway.api.targets:_CHARACTERS_MAX": "format",
    "knative_gateway.api.targets:_SEGMENTS_MAX": "format",
    "knative_gateway.dispatcher.posting.connecting:TICK_S": "pause",
    "knative_gateway.dispatcher.posting.connection:_JOINED_MAX": "cache",
    "knative_gateway.dispatcher.posting.opening:_LOCAL_WAIT_S": "pause",
    "knative_gateway.dispatcher.posting.opening:_REPORT_S": "pause",
    "knative_gateway.dispatcher.posting.resolving:FAILED_MIN_S": "cache",
    "knative_gateway.dispatcher.posting.resolving:SILENT_S": "cache",
    "knative_gateway.dispatcher.posting.sending:_REASON_MAX": "text",
    "knative_gateway.dispatcher.posting.slots:CONNECTIONS_MAX": "format",
    "knative_gateway.engine.appending:_LOOK_S": "pause",
    "knative_gateway.engine.appending:_WARN_S": "pause",
    "knative_gateway.engine.embedded:STABLE_S": "pause",
    "knative_gateway.engine.event_log:READ_EVENTS_MAX": "format",
    "knative_gateway.engine.event_log:_AGAIN_S": "pause",
    "knative_gateway.engine.sharing:_AGAIN_S": "pause",
    "knative_gateway.engine.sharing:_REFUSED_AGAIN_S": "pause",
    "knative_gateway.http.listening:TLS_CLOSE_S": "close",
    "knative_gateway.http.listening:_LOOK_S": "pause",
    "knative_gateway.http.listening:_TICK_S": "pause",
    "knative_gateway.http.patience:LINGER_S": "close",
    "knative_gateway.http.turns:LONG_S": "pause",
    "knative_gateway.http.turns:PAUSE_S_MAX": "pause",
    "knative_gateway.store.database:CLOSE_S": "close",
    "knative_gateway.store.feed:CLOSE_S": "close",
    "knative_gateway.store.opening:_CALLED_OFF_S": "close",
    "knative_gateway.http.web:FIGURES_KEPT_S": "cache",
    "knative_gateway.ingress.answers:UNAVAILABLE_RETRY_S": "pause",
    "knative_gateway.ingress.answers:_WORDS_MAX": "text",
    "knative_gateway.ingress.duplicates:_TEXT_MAX": "cache",
    "knative_gateway.ingress.figures:BOUNDS_S": "text",
    "knative_gateway.ingress.requests:_NAMES_MAX": "cache",
    "knative_gateway.ingress.requests:_NAME_LENGTH_MAX": "cache",
    "knative_gateway.ingress.requests:_VALUE_MAX": "cache",
    "knative_gateway.running.parent:BEAT_S": "workers",
    "knative_gateway.running.parent:FIGURES_S_MAX": "workers",
    "knative_gateway.running.opening:_LOOK_S": "pause",
    "knative_gateway.running.parent:LOOK_S": "workers",
    "knative_gateway.running.parent:SILENT_S": "workers",
    "knative_gateway.running.parent:WORDS_MAX": "workers",
    "knative_gateway.running.supervising:PAUSE_S": "pause",
    "knative_gateway.running.supervising:PAUSE_S_MAX": "pause",
    "knative_gateway.running.supervising:SETTLED_S": "pause",
    "knative_gateway.store.decoded:CHARACTERS_MAX": "cache",
    "knative_gateway.store.feed:POLL_S": "pause",
    "knative_gateway.store.feed:TAIL_MAX": "cache",
    "knative_gateway.store.feed:_AGAIN_S": "pause",
    "knative_gateway.store.resources:CHANGES_MAX": "cache",
}
