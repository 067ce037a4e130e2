"""Requests of a connection: who hears which answer, and what becomes of those that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import geminga.client as gc
from geminga.client._transport import pending_requests
from geminga.client._transport.pending_requests import PendingRequests
from geminga.wire._generated import pulsar_api_pb2 as pb


def run(scenario: Callable[[PendingRequests], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(PendingRequests(asyncio.get_running_loop()))

    asyncio.run(main())


def success(request_id: int) -> pb.BaseCommand:
    return pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def producer_success(request_id: int, *, is_ready: bool) -> pb.BaseCommand:
    answer = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=is_ready)
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER_SUCCESS, producer_success=answer)


def test_each_answer_reaches_who_asked() -> None:
    async def scenario(requests: PendingRequests) -> None:
        first, second = requests.start(1), requests.start(2)
        requests.on_answer(success(2))
        assert not first.done()
        assert (await second).success.request_id == 2
        requests.on_error(1, gc.TopicNotFound("gone"))
        with pytest.raises(gc.TopicNotFound, match="gone"):
            await first
        assert not len(requests)

    run(scenario)


def test_answer_that_carries_an_error_raises_it() -> None:
    async def scenario(requests: PendingRequests) -> None:
        lookup = pb.CommandLookupTopicResponse(
            request_id=7, response=pb.CommandLookupTopicResponse.Failed, error=pb.TopicNotFound, message="no such topic"
        )
        answer = requests.start(7)
        requests.on_answer(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=lookup))
        with pytest.raises(gc.TopicNotFound, match="no such topic"):
            await answer

    run(scenario)


def test_answers_that_nobody_waits_for_are_dropped() -> None:
    async def scenario(requests: PendingRequests) -> None:
        requests.on_answer(success(1))
        requests.on_error(1, gc.TopicNotFound("gone"))
        requests.start(2).cancel()
        requests.on_answer(success(2))
        requests.start(3)
        requests.forget(3)
        assert not len(requests)
        requests.on_answer(success(3))
        requests.start(4)
        requests.on_answer(producer_success(4, is_ready=False))
        requests.forget(4)
        assert not len(requests)
        with pytest.raises(KeyError):
            requests.take_second(4)

    run(scenario)


def test_second_answer_may_come_before_it_is_asked_for() -> None:
    async def scenario(requests: PendingRequests) -> None:
        first = requests.start(1)
        requests.on_answer(producer_success(1, is_ready=False))
        requests.on_answer(producer_success(1, is_ready=True))
        requests.end(1, first)  # whoever waited for the first one goes on
        assert not (await first).producer_success.producer_ready
        assert (await requests.take_second(1)).producer_success.producer_ready

    run(scenario)


def test_end_of_the_first_answer_leaves_the_second_one_due() -> None:
    async def scenario(requests: PendingRequests) -> None:
        first = requests.start(1)
        requests.on_answer(producer_success(1, is_ready=False))
        requests.end(1, first)
        assert len(requests) == 1
        second = requests.take_second(1)
        requests.on_answer(producer_success(1, is_ready=True))
        assert (await second).producer_success.producer_ready

    run(scenario)


def test_end_of_the_connection_fails_all_and_warns_of_none() -> None:
    async def scenario(requests: PendingRequests) -> None:
        answers = [requests.start(number) for number in range(3)]
        answers[0].cancel()
        requests.fail(gc.NotConnected("lost"))
        assert not len(requests)
        for answer in answers[1:]:
            assert isinstance(answer.exception(), gc.NotConnected)

    run(scenario)


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(requests: PendingRequests) -> None:
        monkeypatch.setattr(pending_requests, "REQUESTS_MAX", 2)
        requests.start(1)
        requests.start(2)
        with pytest.raises(gc.TooManyLookupRequestException, match="2 requests wait"):
            requests.start(3)

    run(scenario)
