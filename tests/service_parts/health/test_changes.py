"""The ring of changes is bounded, and the newest one comes first."""

from service_parts.health.changes import CHANGES_MAX, Change, Changes


def test_the_latest_changes_are_kept_newest_first() -> None:
    now = [0]
    changes = Changes(lambda: now[0])
    for number in range(CHANGES_MAX + 5):
        now[0] = number
        changes.add("alice", "DELETE", "event-log", f"log-{number}")
    found = changes.latest()
    assert len(found) == CHANGES_MAX
    assert found[0] == Change(CHANGES_MAX + 4, "alice", "DELETE", "event-log", f"log-{CHANGES_MAX + 4}")
    assert found[-1].name == "log-5"
