"""What a failed command held is gone with its error: no cycle of traceback and frame waits for the collector."""

from __future__ import annotations

import asyncio
import gc as collector
import weakref

import pytest

from geminga.app.commands.perf_commands import Every
from geminga.app.handles.imports import _Progress, _Publisher
from geminga.client import Timeout
from support.house.uncollected import uncollected

CALLS = 3


def test_import_whose_messages_are_refused_leaves_nothing(tmp_path) -> None:
    publisher = _Publisher(None, "t", _Progress(str(tmp_path / "f"), "t"))  # type: ignore[arg-type]

    async def refused() -> None:
        raise Timeout("no receipt")

    async def main() -> None:
        for _ in range(CALLS):
            with pytest.raises(Timeout):
                await publisher._unless_stalled(refused())

    with uncollected() as found:
        asyncio.run(main())
    assert found == []


def test_error_of_a_message_does_not_grow_by_those_who_are_told(tmp_path) -> None:
    publisher = _Publisher(None, "t", _Progress(str(tmp_path / "f"), "t"))  # type: ignore[arg-type]
    publisher._error = Timeout("no receipt")

    async def main() -> None:
        for _ in range(CALLS):
            with pytest.raises(Timeout):
                await publisher.flush()

    asyncio.run(main())
    assert publisher._error.__traceback__ is None


def test_figures_that_nobody_reads_leave_nothing() -> None:
    class Gone(BrokenPipeError):
        pass

    errors: list[weakref.ref[Gone]] = []

    def call() -> None:
        error = Gone("the reader has gone")
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async def main() -> None:
        with pytest.raises(Gone):
            async with asyncio.timeout(10):
                with Every(0.001, call):
                    await asyncio.Event().wait()

    collector.collect()
    collector.disable()
    try:
        asyncio.run(main())
        assert [error() for error in errors] == [None]
    finally:
        collector.enable()
