"""Batches read by a client of another project, over real sockets: the same events as without batches."""

import shutil
from pathlib import Path

import pytest

from examples.node import NodeProcess
from interop.clients import BUILD, RHEA, prepare


def test_rhea_reads_in_batches_what_it_reads_one_by_one(tmp_path: Path) -> None:
    if shutil.which("node") is None or not (BUILD / f"rhea-{RHEA}" / "node_modules" / "rhea").is_dir():
        pytest.skip("rhea is not installed here: make interop does it")
    client = prepare("rhea")
    with NodeProcess(tmp_path, log="temps:2") as node:
        sent = [f"{number:010d} degrees" for number in range(500)]
        assert (
            client.run("send", node.url, "temps", lines="".join(f"{line}\n" for line in sent)).strip()
            == "500"
        )
        singly = client.run("receive", node.url, "temps", "earliest", "500").splitlines()
        in_batches = [client.run("batches", node.url, "temps", partition).splitlines() for partition in "01"]
    assert sorted(line.split("\t")[3] for line in singly) == sent
    assert sorted(singly) == sorted(in_batches[0] + in_batches[1])
    assert all(in_batches), "both partitions have some"
