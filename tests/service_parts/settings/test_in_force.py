"""The settings in force, also after a reload."""

from service_parts.settings.in_force import VALUE_CHARACTERS_MAX, SettingsInForce
from service_parts.settings.showing import InForce


def test_a_reload_changes_only_what_takes_effect_at_once() -> None:
    rows = [InForce("sync", "always", "default"), InForce("quotas.a.links", 3, "node.toml")]
    shown = SettingsInForce(lambda: rows, ["quotas", "access"])
    rows = [
        InForce("sync", "never", "--sync"),
        InForce("access", [{"users": ["a"]}], "node.toml"),
        InForce("quotas.b.links", 4, "node.toml"),
    ]
    shown.reload()
    assert list(shown.rows) == [
        InForce("sync", "always", "default"),
        InForce("access", '[{"users": ["a"]}]', "node.toml"),
        InForce("quotas.b.links", 4, "node.toml"),
    ]


def test_values_are_short_and_have_types_that_the_wire_has() -> None:
    rows = [
        InForce("a", None, "default"),
        InForce("b", True, "default"),
        InForce("c", 1.5, "default"),
        InForce("d", ["x"], "default"),
        InForce("e", "x" * 5000, "default"),
    ]
    shown = [row.value for row in SettingsInForce(lambda: rows, ()).rows]
    assert shown == [None, True, 1.5, '["x"]', "x" * VALUE_CHARACTERS_MAX + " …"]


def test_a_program_that_gives_values_has_no_rows() -> None:
    shown = SettingsInForce(None, ())
    shown.reload()
    assert shown.rows == ()
