"""The writes of a process, in order. Writes that wait at the same time share a transaction. [io]

Writes are carried out in the order of arrival. A write that fails rolls back only itself. A write is durable
when `write` returns. Writes that arrive during a transaction share the next one: a burst of writes needs few
commits, and a later write does not wait for one commit for each.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection

from knative_gateway.errors import UnavailableError
from knative_gateway.store.engines import Engine, Work

TOGETHER_MAX: Final = 32
"""Writes in one transaction. Later writes wait some tens of milliseconds for them."""
T = TypeVar("T")


class Undone(Exception):  # noqa: N818  it is a result, not an error
    """Raised by a write that has nothing to do. It is rolled back, and `value` is its result."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value: Final = value


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    work: Work[Any]
    together: bool
    done: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


class Writer:
    """The writes of one process. `wait_s`: how long a write waits for earlier writes."""

    def __init__(self, engine: Engine, wait_s: float) -> None:
        self._engine: Final = engine
        self._wait_s: Final = wait_s
        self._waiting: Final[deque[_Write]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def write(self, work: Work[T], *, together: bool = False) -> T:
        """Carry out the work, commit it, and return its result. `together`: it may share its transaction with
        others.

        Raises:
            UnavailableError: earlier writes took too long; this write has not begun.
        """
        write = _Write(work, together, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            # Only the wait for the turn has a limit. A write that has begun is awaited, because its outcome
            # would be unknown.
            await asyncio.wait({write.done}, timeout=self._wait_s)
            if write in self._waiting:
                message = f"the state database: other writes take longer than {self._wait_s:g} s"
                raise UnavailableError(message)
            return cast("T", await write.done)
        finally:
            if not write.done.done():
                write.done.cancel()
            if write in self._waiting:  # the caller was cancelled
                self._waiting.remove(write)

    async def close(self) -> None:
        """Wait for all requested writes."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            writes = self._next()
            try:
                results = await self._engine.write(partial(_carried_out, [write.work for write in writes]))
            except asyncio.CancelledError:
                for write in writes:
                    write.done.cancel()
                raise
            except Exception as error:  # noqa: BLE001  the callers get it
                # The commit failed, so none of the writes is stored.
                results = [_Failed(error)] * len(writes)
            for write, result in zip(writes, results, strict=True):
                if write.done.done():
                    continue
                if isinstance(result, _Failed):
                    write.done.set_exception(result.error)
                else:
                    write.done.set_result(result)

    def _next(self) -> list[_Write]:
        writes = [self._waiting.popleft()]
        while (
            self._waiting and writes[0].together and self._waiting[0].together and len(writes) < TOGETHER_MAX
        ):
            writes.append(self._waiting.popleft())
        return writes


def _carried_out(works: Sequence[Work[Any]], connection: Connection) -> list[Any]:
    """Carry out all works in one transaction, commit it, and return the results."""
    # Without a savepoint: it would be two more statements for the usual case.
    if len(works) == 1:
        try:
            results = [works[0](connection)]
        except Undone as undone:
            return [undone.value]
    else:
        results = [_alone(work, connection) for work in works]
    connection.commit()
    return results


def _alone(work: Work[Any], connection: Connection) -> Any:
    """Do one of the works of a transaction. If it fails, only this work is rolled back."""
    savepoint = connection.begin_nested()
    try:
        result = work(connection)
    except Undone as undone:
        savepoint.rollback()
        return undone.value
    except Exception as error:  # noqa: BLE001  of this write alone
        savepoint.rollback()
        return _Failed(error)
    savepoint.commit()
    return result
