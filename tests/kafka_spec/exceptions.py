"""What of the specification's tests does not hold on Kafka, and why."""

from typing import Final

GROUPS: Final = "consumer groups and epochs are refused on Kafka"
DURABLE: Final = "durable subscriptions are refused on Kafka"
CLOCK: Final = "the test sets the clock of the node, and on Kafka the brokers give the times"
RETENTION: Final = "the test sets the clock of the node, and Kafka removes events by its own"
BY_TIME: Final = "a IS NULL AND d.event-streams-timestamp > {1}-900"

EXCEPTIONS: Final[dict[str, str]] = {
    # Section 3
    "test_a_durable_terminus_keeps_its_cursor_and_says_so": DURABLE,
    # Section 4
    "test_the_node_binds_no_link_that_did_not_ask_unless_it_is_in_a_group": GROUPS,
    # Section 4.5
    "test_a_link_may_be_bound_to_a_consumer_group": GROUPS,
    "test_a_group_is_created_by_the_first_attach": GROUPS,
    "test_a_link_in_a_group_is_bound_to_a_partition": GROUPS,
    "test_a_partition_in_a_group_has_at_most_one_active_link": GROUPS,
    "test_the_node_binds_a_member_that_asks_for_no_partition": GROUPS,
    "test_or_the_next_member_waits_until_one_is_free": GROUPS,
    "test_partitions_are_renegotiated_by_closing_links_gracefully": GROUPS,
    "test_a_disconnected_member_comes_back_without_a_partition": GROUPS,
    "test_links_in_a_group_are_never_left_agnostic": GROUPS,
    "test_an_epoch_is_seeded_with_zero_and_answered_to_every_member": GROUPS,
    "test_an_epoch_is_taken_as_any_integer_and_answered_as_a_ulong": GROUPS,
    "test_a_second_link_is_rejected_unless_its_epoch_is_greater": GROUPS,
    "test_a_greater_epoch_takes_the_partition_over": GROUPS,
    "test_settlements_of_an_evicted_link_change_nothing": GROUPS,
    "test_the_epoch_is_not_reset_when_its_link_ends": GROUPS,
    # Section 5
    "test_the_timestamp_is_when_the_log_took_the_event": CLOCK,
    "test_segments_that_are_no_longer_retained_are_not_examined": RETENTION,
    "test_a_timestamp_matches_what_is_greater": CLOCK,
    "test_offset_and_timestamp_must_both_match": CLOCK,
    # Section 6
    "test_the_earliest_offset_is_the_earliest_retained": RETENTION,
    "test_other_entries_are_extensions": "the entries of a partition whose offsets may have gaps say so",
    # Filter Expressions
    "test_a_filter_that_rejects_everything_lets_a_cursor_go_on": DURABLE,
    f"test_bounds_of_offset_and_time_are_sought_not_scanned[{BY_TIME}]": (
        f"{CLOCK}: tests/kafka_spec/test_times.py"
    ),
}
"""By the name of a test of tests/spec, with its parameters if it is about these only."""

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
"""The tests that `make test` runs on Kafka."""
