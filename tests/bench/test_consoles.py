"""What the measurement of consoles says."""

from bench.consoles import Looked, Tailed, words


def test_the_ratio_compares_the_medians() -> None:
    found = Tailed([100.0, 200.0, 900.0], [190.0, 10.0, 800.0])
    assert found.ratio == 0.95
    assert "ratio 0.950" in words(found)


def test_a_page_without_a_search_has_no_time_for_it() -> None:
    page = Looked("1000 logs", 0.5, None, {"node": 0.3}, {"node": 0.1})
    assert words(page) == "1000 logs: shown after 0.50 s; of a core: node 0.30 % (without the page 0.10 %)"
    searched = Looked("1000 logs", 0.5, 0.25, {}, {})
    assert "found after 0.25 s" in words(searched)
