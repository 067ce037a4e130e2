"""Containment: what stays with a part, what passes, what ends the process."""

from __future__ import annotations

import asyncio
import importlib
import logging

import pytest

from geminga.bookkeeper.core.placement import Placement
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.errors import InvariantError, NotAllowedError
from geminga.runtime import Contained, contain, set_fatal_handler, set_strict, spawn, unwound, unwound_storage, where
from geminga.runtime.containment import STORAGE


class Recorder:
    """A part that remembers what broke it."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str]] = []

    def broke(self, what: str, error: BaseException) -> None:
        self.broken.append((what, repr(error)))


def in_loop(story) -> None:
    async def main() -> None:
        story()

    asyncio.run(main())


def test_unexpected_errors_stay_with_the_part() -> None:
    part = Recorder()

    def story() -> None:
        for error in (KeyError("k"), InvariantError("i"), TypeError("t")):
            with Contained(part, "work"):
                raise error

    in_loop(story)
    assert part.broken == [("work", "KeyError('k')"), ("work", "InvariantError('i')"), ("work", "TypeError('t')")]


def test_errors_that_somebody_expects_pass_unless_nobody_is_left() -> None:
    part = Recorder()

    def story() -> None:
        with pytest.raises(NotAllowedError), Contained(part, "work"):
            raise NotAllowedError("no")
        with Contained(part, "the last", is_last=True):
            raise NotAllowedError("no")
        with pytest.raises(KeyError), Contained(None, "work"):
            raise KeyError("nobody's")
        with pytest.raises(asyncio.CancelledError), Contained(part, "work", is_last=True):
            raise asyncio.CancelledError

    in_loop(story)
    assert part.broken == [("the last", "NotAllowedError('no')")]


def test_what_unwound_storage_is_never_contained() -> None:
    part = Recorder()

    def story() -> None:
        with pytest.raises(TypeError) as raised, Contained(part, "work", is_last=True):
            Placement().set_racks(None)  # type: ignore[arg-type]
        assert unwound_storage(raised.value)
        assert unwound(raised.value, ["geminga.bookkeeper.core"])
        assert not unwound(raised.value, ["geminga.book", "geminga.managed_ledger"])
        assert where(raised.value).startswith("bookkeeper.core.placement:")
        with Contained(part, "the list of ledgers", is_last=True):
            LedgerList([LedgerInfo(2), LedgerInfo(1)])

    in_loop(story)
    assert [what for what, _ in part.broken] == ["the list of ledgers"]


def test_storage_is_there() -> None:
    for name in STORAGE:
        importlib.import_module(name)


def test_part_that_can_not_be_closed_is_said_so_and_nothing_more(caplog) -> None:
    class Stubborn:
        def broke(self, what: str, error: BaseException) -> None:
            raise OSError("will not close")

    def story() -> None:
        with Contained(Stubborn(), "work"):
            raise KeyError("k")

    with caplog.at_level(logging.ERROR):
        in_loop(story)
    assert ["will not close" in record.getMessage() for record in caplog.records] == [True]


def test_task_that_fails_closes_its_part_and_not_the_process() -> None:
    part, fatal = Recorder(), []

    async def fail() -> None:
        raise NotAllowedError("nobody waits for this")

    async def fail_in_storage() -> None:
        Placement().set_racks(None)  # type: ignore[arg-type]

    async def main() -> None:
        set_fatal_handler(lambda name, _: fatal.append(name))
        await asyncio.wait([spawn(fail(), name="request", part=part)])
        await asyncio.wait([spawn(fail_in_storage(), name="write", part=part)])
        await asyncio.wait([spawn(asyncio.Event().wait(), name="quick", part=part)], timeout=0)
        assert not contain(part, "cancelled", asyncio.CancelledError())

    asyncio.run(main())
    assert [what for what, _ in part.broken] == ["request"]
    assert fatal == ["write"]


def test_strict_loop_contains_nothing() -> None:
    part = Recorder()

    async def main() -> None:
        set_strict(asyncio.get_running_loop(), True)
        with pytest.raises(KeyError), Contained(part, "work"):
            raise KeyError("k")
        set_strict(asyncio.get_running_loop(), False)
        with Contained(part, "work"):
            raise KeyError("k")

    asyncio.run(main())
    assert len(part.broken) == 1
