"""The checks of `bench.brokers.homes_chaos` find what they are for."""

import json

from bench.brokers.homes_chaos import Decides, falls, overlaps


def test_a_home_that_decides_after_its_successor_is_found() -> None:
    good = [Decides(10, 0, 1, "a"), Decides(20, 0, 2, "b"), Decides(15, 1, 1, "b")]
    assert not overlaps(good)
    (found,) = overlaps([*good, Decides(21, 0, 1, "a")])
    assert "node='a'" in found


def test_a_term_or_a_cursor_that_falls_is_found() -> None:
    def record(key: str, **fields: object) -> tuple[str, bytes]:
        return key, json.dumps(fields).encode()

    good = [record("home", term=1), record("c/1", next={"0": 5}), record("owner/x", link=3)]
    later = [record("home", term=2), record("c/1", next={"0": 6})]
    assert not falls(good + later)
    assert falls(later + good) == ["home fell from 2 to 1", "c/1 fell from 6 to 5"]
