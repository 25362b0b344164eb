"""The judgement of the attacks."""

from collections.abc import Callable
from pathlib import Path

import pytest

import attack.__main__ as command
from attack.disk import DISK, NOISE_MS, RATIO_MAX
from attack.load import FOREIGN_MAX
from attack.neighbour import Measured
from attack.report import BrokenError, Found, expect, is_quiet, judged, table
from attack.room import CALM_LOOK_S, CALM_S_MAX, Room

CALM = {"amqp": Measured((10.0,) * 100)}


def during(ms: float, *errors: str) -> dict[str, Measured]:
    return {"amqp": Measured((ms,) * 100, errors)}


def test_a_neighbour_that_notices_nothing_has_no_complaint() -> None:
    assert judged(CALM, during(10.0 * RATIO_MAX), is_timed=True) == []


def test_a_neighbour_that_is_slower_complains_where_times_are_judged() -> None:
    slow = during(10.0 * RATIO_MAX + NOISE_MS + 1)
    assert "p99" in judged(CALM, slow, is_timed=True)[0]
    assert judged(CALM, slow, is_timed=False) == []


def found(*complaints: str, foreign: float | None = None) -> Found:
    return Found("a flood", "listeners", "a turn", "", {}, {}, complaints, foreign=foreign)


def test_beside_other_programs_a_time_is_neither_good_nor_bad() -> None:
    assert is_quiet(FOREIGN_MAX)
    assert not is_quiet(FOREIGN_MAX + 0.01)
    assert [found(foreign=each).verdict for each in (None, 0.0, FOREIGN_MAX)] == ["held"] * 3
    busy = found(foreign=FOREIGN_MAX + 0.01)
    assert busy.verdict == busy.as_json()["verdict"] == "not judged"
    assert "other programs used 11% of the CPUs" in table([busy])


def test_what_is_broken_without_a_clock_is_broken_on_a_busy_machine_too() -> None:
    assert found("the node ended", foreign=0.9).verdict == "BROKEN"


def test_beside_a_disk_that_pauses_a_time_is_neither_good_nor_bad() -> None:
    paused = Found("a flood", "listeners", "a turn", "", {DISK: 1.0}, {DISK: 9.0}, disk_paused=True)
    assert paused.verdict == "not judged"
    assert paused.ratio == 0.0
    assert "the disk was slower by itself" in table([paused])
    assert judged({DISK: CALM["amqp"]}, {DISK: during(99.0)["amqp"]}, is_timed=True) == []


def test_a_product_that_is_still_busy_with_earlier_attacks_is_not_judged() -> None:
    waited = Found("a flood", "listeners", "a turn", "", {}, {}, busy_s=3.0)
    assert waited.verdict == "held"
    assert "busy for 3 s after the attacks before" in table([waited])
    busy = Found("a flood", "listeners", "a turn", "", {}, {}, busy_s=30.0, is_calm=False)
    assert busy.verdict == busy.as_json()["verdict"] == "not judged"
    assert "did not become calm" in table([busy])
    assert "busy" not in table([Found("a flood", "listeners", "a turn", "", {}, {}, busy_s=0.5)])


class Working(Room):
    """A product whose use of the CPU is given: seconds in each look."""

    def __init__(self, *used: float) -> None:
        self.calm_share = None
        self._used, self._now, self._looks = list(used), 0.0, 0

    def cpu_s(self) -> float:
        self._looks += 1
        if self._looks % 2 == 0:
            self._now += self._used.pop(0)
        return self._now


def test_an_attack_waits_until_the_product_is_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("attack.room.time.sleep", sleep)
    monkeypatch.setattr("attack.room.time.monotonic", lambda: now)
    room = Working(0.1, 0.1, 0.5, 0.4, 0.12, *[0.5] * 100)
    assert room.settle() == (0.0, True), "what it uses without an attack"
    assert room.settle() == (0.0, True)
    assert room.settle() == (2 * CALM_LOOK_S, True)
    waited, is_calm = room.settle()
    assert not is_calm
    assert CALM_S_MAX <= waited <= CALM_S_MAX + CALM_LOOK_S


def test_an_error_of_the_neighbour_is_a_complaint_everywhere() -> None:
    assert "no answer" in judged(CALM, during(1.0, "no answer"), is_timed=False)[0]


def test_a_round_trip_that_is_not_complete_counts_with_its_time_so_far() -> None:
    assert Measured((1.0, 1.0), waiting_ms=900.0).p99 == 900.0


def test_a_promise_that_is_not_kept_breaks_an_attack() -> None:
    expect(1, "held")
    with pytest.raises(BrokenError, match="not held"):
        expect(0, "not held")


def test_the_table_shows_what_the_attacker_got_and_the_verdict() -> None:
    flood = Found("a flood", "listeners", "a turn", "1,000 frames", {"amqp": 2.0}, {"amqp": 3.0})
    shown = table([flood])
    assert "1.50" in shown
    assert "got: 1,000 frames" in shown
    assert shown.splitlines()[1].endswith("held")
    broken = Found("a flood", "listeners", "a turn", "", {}, {}, ("the node ended",))
    assert "BROKEN" in table([broken])
    assert "the node ended" in table([broken])


def test_the_command_writes_its_table_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each attack, so that a run that is stopped has its rows too."""
    flood, spill = (Found(name, "listeners", "a turn", "", {}, {}) for name in ("a flood", "a spill"))
    file, seen = tmp_path / "made" / "attack.txt", []

    def run(*_: object, report: Callable[[Found], None], **__: object) -> list[Found]:
        for row in (flood, spill):
            report(row)
            seen.append(file.read_text("utf-8"))
        return [flood, spill]

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--out", str(file), "--attack", "frame that is too large"]) == 0
    assert "a flood" in seen[0]
    assert "a spill" not in seen[0]
    assert "not finished" in seen[0]
    assert file.read_text("utf-8").endswith("2 attacks in 0 minutes, 0 broken, 0 not judged\n")


def test_a_text_that_no_attack_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--attack", "no attack is called this"])
    assert "no attack has this text in its name" in capsys.readouterr().err
