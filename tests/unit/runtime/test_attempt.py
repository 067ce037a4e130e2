"""What code that is not ours raises is a value; what must pass, passes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from geminga.client import NotConnected, PulsarException
from geminga.model.errors import NotEnoughBookiesError
from geminga.proxy.link import RefusedByBrokerError
from geminga.runtime import Raised, again, attempt, attempt_await, tell, value_of
from geminga.wire._generated import pulsar_api_pb2 as pb


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


def test_value_or_the_error_in_its_place() -> None:
    assert value_of(1) == 1
    assert value_of(None) is None
    with pytest.raises(KeyError, match="k"):
        value_of(KeyError("k"))


def test_kept_error_is_raised_as_it_is_and_does_not_grow() -> None:
    kept = NotConnected("x")
    kept.__notes__ = ["at noon"]
    for _ in range(3):
        with pytest.raises(NotConnected, match="x") as raised:
            raise again(kept)
        assert raised.value is not kept
        assert raised.value.__notes__ == ["at noon"]
    assert kept.__traceback__ is None


def test_errors_of_the_client_can_be_copied() -> None:
    """As ``again`` does with those that are kept."""
    kinds = [PulsarException]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 50
    for kind in kinds:
        copied = again(kind("why"))
        assert type(copied) is kind
        assert str(copied) == str(kind("why"))


@pytest.mark.parametrize(
    "kept",
    [
        RefusedByBrokerError("no", pb.AuthorizationError, b"frame"),
        NotEnoughBookiesError("need 3", "one is full"),
        FileNotFoundError(2, "no such file", "/a"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_kept_error_with_arguments_of_its_own_is_raised_again_with_them(kept) -> None:
    copied = again(kept)
    assert copied is not kept
    assert (type(copied), str(copied), vars(copied)) == (type(kept), str(kept), vars(kept))


def test_kept_error_says_what_caused_it_each_time() -> None:
    kept = NotConnected("x")
    kept.__cause__ = cause = KeyError("k")
    with pytest.raises(NotConnected) as raised:
        raise again(again(kept))
    assert raised.value.__cause__ is cause
    alone = NotConnected("x")
    assert not again(alone).__suppress_context__
