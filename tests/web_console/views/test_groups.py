"""The list of groups says whose members are not known, and why."""

from amqp_streams.client import CursorInfo, CursorPosition, GroupInfo
from web_console.node import NODE
from web_console.settings import ConsoleSettings
from web_console.showing.paging import page_of
from web_console.views.groups import _of_cursor, _of_group
from web_console.views.requests import Console

REASON = "the home 127.0.0.1:7 is not reached: <refused>"
OWNED = (CursorPosition("0", 4, 5, 0, 0, "m1"),)
SILENT = GroupInfo("temps", "far", True, 3, None, OWNED, members_known=False, members_reason=REASON)
LINK = CursorInfo("temps", "1", container="c", link="l", members_known=False, members_reason=REASON)


def shown(*, incomplete: tuple[str, ...] = ()) -> str:
    readers = [
        _of_group(GroupInfo("temps", "near", True, 2, None, OWNED)),
        _of_group(SILENT),
        _of_cursor(LINK),
    ]
    here = page_of(readers, 1)
    return Console(ConsoleSettings(url="amqp://127.0.0.1:5672"), NODE).render(
        "groups.html", root="", session=None, product=NODE, address="", version="1", rights=None,
        view="groups", log="", page=here, reasons=[REASON], incomplete=incomplete,
    )  # fmt: skip


def test_members_that_are_not_known_are_not_shown_as_none_or_as_some() -> None:
    page = shown()
    rows = page.split("<tr>")[2:]
    assert ['<td class="n">1</td>' in row for row in rows] == [True, False, False]
    assert ['<td class="n">-</td>' in row for row in rows[1:]] == [True, True]
    assert page.count("&lt;refused&gt;") == 1
    assert "may be missing" not in page


def test_a_list_that_may_lack_groups_says_so() -> None:
    assert "may be missing: no node decides." in shown(incomplete=("no node decides",))
