"""Whether the node answers, with a real node that is stopped, killed, or never started."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from examples.node import NodeProcess
from knative_gateway.engine.event_log import AmqpEventLog
from knative_gateway.engine.probing import ProbeTimes
from tests.knative_gateway.dispatcher.rig import until

TIMES = ProbeTimes(every_s=0.1, silent_s=0.3, warn_s=0.05, warn_every_s=3600)


@pytest.fixture
def node(tmp_path: Path) -> NodeProcess:
    return NodeProcess(tmp_path)


@pytest.fixture
async def log(node: NodeProcess) -> AsyncIterator[AmqpEventLog]:
    with node:
        async with AmqpEventLog(node.url, probes=TIMES) as log:
            await log.wait_connected(60)
            yield log


async def test_a_node_that_is_frozen_is_a_problem_until_it_answers_again(
    node: NodeProcess, log: AmqpEventLog
) -> None:
    await until(lambda: log.problem is None)
    os.kill(node.pid, signal.SIGSTOP)
    with capture_logs() as lines:
        await until(lambda: log.problem is not None)
    assert "the event log node has not answered for" in str(log.problem)
    assert {"event": "event_log_silent", "url": node.url}.items() <= lines[0].items()
    assert log.connected, "the connection is open, and nothing else says that the node is not well"
    os.kill(node.pid, signal.SIGCONT)
    await until(lambda: log.problem is None)


async def test_a_node_that_has_ended_is_a_problem_at_once(node: NodeProcess, log: AmqpEventLog) -> None:
    os.kill(node.pid, signal.SIGKILL)
    await until(lambda: log.problem == "the event log node is unreachable")


async def test_a_node_that_does_not_run_is_awaited_with_messages_without_its_password() -> None:
    with capture_logs() as lines:
        async with AmqpEventLog("amqp://ann:secret@127.0.0.1:1", probes=TIMES) as log:
            await until(lambda: len(lines) > 0)
            assert log.problem == "the event log node is unreachable"
            await asyncio.sleep(3 * TIMES.warn_s)
    assert lines == [{"event": "event_log_awaited", "log_level": "warning", "url": "amqp://127.0.0.1:1"}], (
        "once, and not again at once"
    )
