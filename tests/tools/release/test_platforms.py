"""Platform tags: only those that are true."""

import platform

import pytest

from tools.release.errors import ReleaseError
from tools.release.platforms import tags_of

MACHINE = platform.machine()


def test_a_manylinux_tag_has_its_older_name() -> None:
    assert tags_of(f"manylinux_2_17_{MACHINE}", "") == [
        f"manylinux_2_17_{MACHINE}",
        f"manylinux2014_{MACHINE}",
    ]
    assert tags_of(f"manylinux_2_34_{MACHINE}", "") == [f"manylinux_2_34_{MACHINE}"]


def test_a_tag_of_this_machine_is_not_given_as_another() -> None:
    with pytest.raises(ReleaseError, match=r"only linux_x86_64: x\.whl needs libssl"):
        tags_of("linux_x86_64", "x.whl needs libssl.so.3")
