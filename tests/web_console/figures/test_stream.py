"""Server-sent events."""

from web_console.figures.stream import KEEP_ALIVE, server_event


def test_no_data_can_end_its_event_or_begin_another() -> None:
    event = server_event("figures", {"a": "x\n\nevent: ended\rdata: y"})
    assert event.count(b"\n") == 3
    assert b"\r" not in event
    assert event.endswith(b"\n\n")
    assert KEEP_ALIVE.startswith(b":")
