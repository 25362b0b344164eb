"""Rows of Tables as lines of the map. Pure."""

from web_console.gateway.rows import Line, collection, lines, receiver_of, records, source_of


def table(heads: str, *rows: list[object], namespace: str | None = None) -> dict[str, object]:
    found: list[dict[str, object]] = [{"cells": row} for row in rows]
    if namespace is not None:
        for row in found:
            row["object"] = {"metadata": {"namespace": namespace}}
    return {"columnDefinitions": [{"name": head} for head in heads.split()], "rows": found}


TRIGGERS = table(
    "Name Broker Subscriber_URI Ready Reason Delivered Lag Failed Dead_Lettered Dropped Dead_Letter_Sink_URI",
    ["b", "x", "http://b/", "True", "Paused", 5, 2, 1, 0, 0, "http://sink/"],
    ["a", "x", None, "False", "NoBroker", None, None, None, None, None, None],
    ["c", "y", "http://c/", "True", None, 1, 0, 0, 1, 0, None],
)
BROKERS = table(
    "Name URL Age Ready Reason", ["x", "http://g/x", "1m", "True", None], ["z", None, "1m", "False", "R"]
)
RECEIVERS = [receiver_of("trigger", row) for row in records(TRIGGERS, "n")]
SOURCES = [source_of("broker", row) for row in records(BROKERS, "n")]


def names(found: list[Line]) -> list[tuple[str, str, str]]:
    return [
        (
            line.key[2],
            "" if line.source is None else line.source.ready,
            line.receiver.name if line.receiver else "",
        )
        for line in found
    ]


def test_lines_are_in_the_order_of_their_sources_and_names() -> None:
    assert names(lines(SOURCES, RECEIVERS)) == [
        ("x", "True", "a"),
        ("x", "True", "b"),
        ("y", "", "c"),
        ("z", "False", ""),
    ]


def test_a_search_looks_at_names_and_subscribers() -> None:
    assert names(lines(SOURCES, RECEIVERS, find="HTTP://B")) == [("x", "True", "b")]
    assert names(lines(SOURCES, RECEIVERS, find="z")) == [("z", "False", "")]


def test_a_state_chooses_receivers() -> None:
    for state, wanted in (
        ("waiting", ["a"]),
        ("paused", ["b"]),
        ("failing", ["c"]),
        ("behind", ["b"]),
    ):
        assert [name for _, _, name in names(lines(SOURCES, RECEIVERS, state=state))] == wanted
    assert [one.state for one in RECEIVERS] == ["paused", "not ready: NoBroker", "ready"]


def test_a_subscription_names_the_kind_of_its_channel() -> None:
    heads = "Name Channel Channel_Kind Subscriber_URI Reply_URI"
    [row] = records(table(heads, ["s", "c", "InMemoryChannel", None, "http://reply/"], namespace="m"), "")
    one = receiver_of("subscription", row)
    assert one.source == ("inmemorychannel", "m", "c")
    assert (one.row, one.subscriber) == ("subscription/m/s", "http://reply/")


def test_tables_that_are_not_valid_have_no_rows_or_empty_ones() -> None:
    assert list(records({}, "n")) == []
    assert list(records({"rows": [1, {"cells": None}], "columnDefinitions": "x"}, "n")) == [
        {"namespace": "n"}
    ]
    one = receiver_of("trigger", {"name": "x" * 5000, "lag": True, "delivered": "7"})
    assert one.name == "x" * 500 + " …"
    assert (one.lag, one.delivered) == (None, None)


def test_paths_of_collections() -> None:
    assert collection("broker", "") == "/apis/eventing.knative.dev/v1/brokers"
    assert (
        collection("subscription", "a%2Fb") == "/apis/messaging.knative.dev/v1/namespaces/a%2Fb/subscriptions"
    )
