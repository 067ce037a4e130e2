"""What code that is not ours raises is a value; what must pass, passes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from geminga.runtime import Raised, attempt, attempt_await, tell


def test_result_or_what_was_raised() -> None:
    assert attempt(lambda a, *, b: a + b, 1, b=2) == 3
    failed = attempt(lambda: {}["k"])
    assert isinstance(failed, Raised)
    assert isinstance(failed.error, KeyError)
    assert str(failed) == "KeyError: 'k'"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_interrupts_and_cancellation_pass(kind) -> None:
    def raising() -> None:
        raise kind

    async def later() -> None:
        raise kind

    with pytest.raises(kind):
        attempt(raising)
    awaited = attempt_await(later())
    with pytest.raises(kind):
        awaited.send(None)


def test_awaited_result_or_what_it_raised() -> None:
    async def give(value):
        if isinstance(value, Exception):
            raise value
        return value

    assert asyncio.run(attempt_await(give(1))) == 1
    failed = asyncio.run(attempt_await(give(KeyError("k"))))
    assert isinstance(failed, Raised)
    assert isinstance(failed.error, KeyError)


def test_what_nobody_waits_for_is_logged(caplog) -> None:
    log = logging.getLogger("geminga.test")
    tell(log, "interceptor", lambda: 1)
    assert not caplog.records
    tell(log, "interceptor", lambda: {}["k"])
    (record,) = caplog.records
    assert record.getMessage() == "interceptor: KeyError: 'k'"
    assert record.exc_info is not None
