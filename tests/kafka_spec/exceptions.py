"""What of the specification's tests and scenarios does not hold on Kafka, and why."""

from typing import Final

GROUPS: Final = "consumer groups and epochs are refused on a node without homes"
CLOCK: Final = "the test sets the clock of the node, and on Kafka the brokers give the times"
RETENTION: Final = "the test sets the clock of the node, and Kafka removes events by its own"
BY_TIME: Final = "a IS NULL AND d.event-streams-timestamp > {1}-900"

EXCEPTIONS: Final[dict[str, str]] = {
    # Section 5
    "test_the_timestamp_is_when_the_log_took_the_event": CLOCK,
    "test_segments_that_are_no_longer_retained_are_not_examined": RETENTION,
    "test_a_timestamp_matches_what_is_greater": CLOCK,
    "test_offset_and_timestamp_must_both_match": CLOCK,
    # Section 6
    "test_the_earliest_offset_is_the_earliest_retained": RETENTION,
    "test_other_entries_are_extensions": "the entries of a partition whose offsets may have gaps say so",
    # Filter Expressions
    f"test_bounds_of_offset_and_time_are_sought_not_scanned[{BY_TIME}]": (
        f"{CLOCK}: tests/kafka_spec/test_times.py"
    ),
}
"""By the name of a test of tests/spec, with its parameters if it is about these only."""

HOMED: Final[frozenset[str]] = frozenset(
    {
        "test_a_durable_terminus_keeps_its_cursor_and_says_so",
        "test_the_node_binds_no_link_that_did_not_ask_unless_it_is_in_a_group",
        "test_a_link_may_be_bound_to_a_consumer_group",
        "test_a_group_is_created_by_the_first_attach",
        "test_a_link_in_a_group_is_bound_to_a_partition",
        "test_a_partition_in_a_group_has_at_most_one_active_link",
        "test_the_node_binds_a_member_that_asks_for_no_partition",
        "test_or_the_next_member_waits_until_one_is_free",
        "test_partitions_are_renegotiated_by_closing_links_gracefully",
        "test_a_disconnected_member_comes_back_without_a_partition",
        "test_links_in_a_group_are_never_left_agnostic",
        "test_an_epoch_is_seeded_with_zero_and_answered_to_every_member",
        "test_an_epoch_is_taken_as_any_integer_and_answered_as_a_ulong",
        "test_a_second_link_is_rejected_unless_its_epoch_is_greater",
        "test_a_greater_epoch_takes_the_partition_over",
        "test_settlements_of_an_evicted_link_change_nothing",
        "test_the_epoch_is_not_reset_when_its_link_ends",
        "test_a_filter_that_rejects_everything_lets_a_cursor_go_on",
    }
)
"""Tests of groups, epochs and cursors: their node has homes, which let time pass at each step."""

SAMPLE: Final[frozenset[str]] = frozenset(
    {
        "test_omitting_the_offset_delivers_what_is_added_after_attaching",
        "test_an_offset_that_was_delivered_is_where_a_new_link_resumes",
        "test_a_producer_and_a_consumer_interact_as_with_any_regular_node",
        "test_a_durable_terminus_keeps_its_cursor_and_says_so",
        "test_a_link_may_be_bound_to_a_consumer_group",
        "test_all_transfers_of_a_bound_link_belong_to_its_partition",
        "test_events_with_one_key_go_to_one_partition",
        "test_every_message_delivered_carries_offset_and_timestamp",
        "test_a_timestamp_matches_what_is_greater",
        "test_one_credit_brings_one_message",
        "test_every_kind_of_filter_is_served",
    }
)
"""The tests that `make heavy` runs on Kafka."""

GAPS: Final = "a transaction takes an offset for its end: the offsets of the events have gaps"

SCENARIO_EXCEPTIONS: Final[dict[str, str]] = dict.fromkeys(
    [
        *("4 ¶4", "4 ¶9", "4 ¶10", "4.3 ¶3"),
        *(f"4.5 ¶{paragraph}" for paragraph in range(1, 9)),
        *(f"4.5.1 ¶{paragraph}" for paragraph in range(1, 5)),
        *(f"4.5.2 ¶{paragraph}" for paragraph in range(1, 7)),
        *("4.6.2 ¶1", "4.6.2 ¶2", "4.6.2 ¶3", "4.6.3 ¶1", "4.6.3 ¶2"),
    ],
    GROUPS,
) | dict.fromkeys(("idempotent ¶1", "idempotent ¶4"), GAPS)
"""By the name of a scenario (tests/scenarios)."""

SCENARIO_SAMPLE: Final[frozenset[str]] = frozenset({"4.5.2 ¶4", "5.2 ¶2", "idempotent ¶2", "idempotent ¶3"})
"""The scenarios that `make heavy` plays on Kafka."""

TIMES: Final = "the brokers, or Kafka clients, give the times"
NUMBERED: Final = (
    "the partitions of a producer are its own: tests/amqp_streams/kafka/numbered/test_numbers.py"
)
FOREIGN: Final = "a node does not create, change or delete topics of other programs"
SECTIONS: Final = "the test counts bytes, and its messages are in data sections, which have more"

PLAIN_EXCEPTIONS: Final[dict[str, str]] = {
    "test_retention_by_bytes_drops_whole_segments_from_the_oldest_on": RETENTION,
    "test_retention_by_age_drops_even_the_last_record_and_offsets_continue": RETENTION,
    "test_retention_by_age_continues_after_a_clock_was_wrong_once": RETENTION,
    "test_a_reader_overtaken_by_retention_continues_at_the_earliest": RETENTION,
    "test_numbers_are_known_when_their_events_are_durable_and_not_before": NUMBERED,
    "test_the_latest_writer_is_last_and_the_forgotten_ones_are_removed": NUMBERED,
    "test_header_sizes_and_timestamps_stay_with_their_records": TIMES,
    "test_timestamps_never_decrease_though_the_clock_does": TIMES,
    "test_a_clock_that_jumps_by_months_within_a_commit_stops_nothing": TIMES,
    "test_seeking_a_timestamp_gives_the_first_record_after_it": TIMES,
    "test_facts_describe_the_present_state": "Kafka says neither bytes nor times of a partition cheaply",
    "test_each_record_has_the_format_that_it_came_with": "records of Kafka clients have no message-format",
    "test_appends_of_one_commit_keep_their_formats_apart": "records of Kafka clients have no message-format",
    "test_nothing_is_visible_before_its_commit_ended": SECTIONS,
    "test_a_read_is_about_as_large_as_asked_and_never_empty": SECTIONS,
    "test_a_commit_reports_how_much_it_contained": SECTIONS,
    "test_the_pending_bytes_of_a_store_are_those_of_its_queues": SECTIONS,
    "test_a_log_is_created_changed_and_deleted_by_questions": FOREIGN,
    "test_settings_change_but_not_the_number_of_partitions": FOREIGN,
    "test_a_compression_is_kept_or_refused": FOREIGN,
    "test_a_deleted_log_does_not_exist_and_its_pending_appends_fail": FOREIGN,
    "test_the_identity_of_a_store_does_not_change_with_its_logs": FOREIGN,
    "test_a_namesake_of_a_deleted_log_begins_empty": FOREIGN,
}
"""By the name of a test of the suite of all stores, on topics that exist (tests/kafka_spec/test_plain_…)."""

PLAIN_SAMPLE: Final[frozenset[str]] = frozenset(
    {
        "test_appended_records_are_read_back_whole_and_in_order",
        "test_a_log_is_created_changed_and_deleted_by_questions",
    }
)
"""The tests of that suite that `make heavy` runs on such topics."""
