"""A few transcripts over real sockets, with clients of other projects. All of them: `make scenarios`."""

import shutil
from pathlib import Path

import pytest

from interop.clients import BUILD, RHEA
from tests.scenarios.script import sections
from tests.scenarios.wire import CLIENTS, WireStage, command_of, differences

FEW = ("4.5.2 ¶4", "5.2 ¶2")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_few_transcripts_are_the_same_over_the_wire(client: str, tmp_path: Path) -> None:
    if client == "rhea" and (
        shutil.which("node") is None or not (BUILD / f"rhea-{RHEA}" / "node_modules" / "rhea").is_dir()
    ):
        pytest.skip("rhea is not installed here: make scenarios does it")
    few = [scenario for section in sections() for scenario in section.scenarios if scenario.name in FEW]
    assert len(few) == len(FEW)
    with WireStage(command_of(client), tmp_path) as stage:
        wrong = differences(stage, few)
    assert not wrong, "\n\n".join(wrong)
