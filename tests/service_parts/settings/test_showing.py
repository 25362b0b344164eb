"""Each setting is shown with its source, in the notation of files, and without passwords."""

import pytest

from service_parts.settings.reference import Contents, Form, Kind, Section, Setting
from service_parts.settings.showing import InForce, in_force, written
from service_parts.settings.sources import Given

CONTENTS = Contents(
    (Setting("url", Kind.TEXT, "A URL."), Setting("wait", Kind.DURATION, "A time.", default=90_000)),
    (
        Section("limits", Form.TABLE, "Limits.", (Setting("size", Kind.SIZE, "A size.", default=1 << 20),)),
        Section("logs", Form.NAMED, "Logs.", (Setting("partitions", Kind.NUMBER, "A number."),)),
    ),
)


def test_defaults_come_first_and_tables_with_names_last() -> None:
    given = {
        ("logs", "temps", "partitions"): Given(4, "node.toml"),
        ("url",): Given("amqp://ann:pw@h,bob:pw@i", "--url"),
    }
    assert in_force(CONTENTS, given) == [
        InForce("url", "amqp://ann:***@h,bob:***@i", "--url"),
        InForce("wait", "90s", "default"),
        InForce("limits.size", "1MiB", "default"),
        InForce("logs.temps.partitions", 4, "node.toml"),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://ann:s3cret@h/db", "postgresql://ann:***@h/db"),
        (("amqp://a:b@h", "x"), ["amqp://a:***@h", "x"]),
        ({"name": "http://a:b@h"}, {"name": "http://a:***@h"}),
        ("http://h:80/a", "http://h:80/a"),
        ("amqp://ann:a/b,c@h", "amqp://ann:***@h"),
        (5, 5),
    ],
)
def test_no_password_of_a_url_is_shown(value: object, shown: object) -> None:
    assert in_force(CONTENTS, {("url",): Given(value, "x")})[0].value == shown


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.DURATION, 1500, "1500ms"), (Kind.DURATION, 86_400_000, "1d"), (Kind.SIZE, 1 << 30, "1GiB"),
        (Kind.SIZE, 1000, 1000), (Kind.SECONDS, 0.5, 0.5), (Kind.NUMBER, 2.0, 2), (Kind.SWITCH, True, True),
        (Kind.TEXT, None, None),
    ],
)  # fmt: skip
def test_values_are_written_as_in_files(kind: Kind, value: object, text: object) -> None:
    assert written(Setting("s", kind, "S."), value) == text
