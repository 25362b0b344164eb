"""The table of costs that should not grow."""

from bench.scale.flat import Row, opened, table


def test_the_table_relates_each_row_to_the_first_of_its_axis() -> None:
    rows = [
        Row("links", 1, {"us in": 2.0, "us out": 4.0}),
        Row("links", 1000, {"us in": 3.0, "us out": 4.0}),
        Row("partitions", 1, {"us in": 5.0}),
    ]
    lines = table(rows).splitlines()
    assert "| links | 1,000 | us in | 3.00 | 1.50 |" in lines
    assert "| links | 1,000 | us out | 4.00 | 1.00 |" in lines
    assert "| partitions | 1 | us in | 5.00 | 1.00 |" in lines


def test_a_first_row_of_zero_has_no_ratio() -> None:
    assert "| links | 1 | us in | 0.00 | - |" in table([Row("links", 1, {"us in": 0.0})])


def test_the_seconds_of_each_opening_are_read() -> None:
    text = "1 GiB of 1 KiB events\nclosed in order        opened in 1.90 s, 1,056,000 events\n"
    assert opened(text + "killed while writing   opened in 4.71 s, 2 events\n") == {
        "s to open, closed in order": 1.9,
        "s to open, killed while writing": 4.71,
    }
