"""What a client makes is awaited, or entered at once; given up while it opens, nothing is left of it."""

from __future__ import annotations

import asyncio
import gc as garbage

import pytest

import geminga.client as gc
from geminga.client._api.opening import Opening
from geminga.runtime import next_turn, spawn
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
#: More than opening any of them takes.
TURNS_MAX = 60


def makers(client: gc.Client) -> list:
    return [
        lambda: client.create_producer(TOPIC),
        lambda: client.subscribe(TOPIC, "s"),
        lambda: client.create_reader(TOPIC, gc.MessageId.earliest),
        lambda: client.create_table_view(TOPIC),
    ]


def test_everything_a_client_makes_can_be_entered_without_await() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        async with client.create_producer(TOPIC) as producer, client.subscribe(TOPIC, "s") as consumer:
            await producer.send(b"a", partition_key="k")
            assert (await consumer.receive(5000)).data() == b"a"
        with pytest.raises(gc.AlreadyClosed):
            await producer.send(b"b")
        with pytest.raises(gc.AlreadyClosed):
            await consumer.receive(1)
        async with client.create_reader(TOPIC, gc.MessageId.earliest) as reader:
            assert (await reader.read_next(5000)).data() == b"a"
        assert not reader.is_connected()
        async with client.create_table_view(TOPIC) as view:
            assert view.get("k") == b"a"
        with pytest.raises(gc.AlreadyClosed):
            view.get("k")

    run_with_broker(scenario)


def test_it_is_a_coroutine_as_before() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        for make in makers(client):
            async with await make():
                pass
            opening = make()
            assert isinstance(opening, Opening)
            assert asyncio.iscoroutine(opening)
            one = await spawn(opening, name="open")
            other = await asyncio.wait_for(make(), 5) if not isinstance(one, gc.Consumer) else one
            await asyncio.gather(one.close(), other.close())
            with pytest.raises(RuntimeError):
                await opening

    run_with_broker(scenario)


def test_an_error_of_opening_or_of_the_body_is_raised_and_closes() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        with pytest.raises(gc.InvalidConfiguration, match="consumer_type='Shared'"):
            async with client.subscribe(TOPIC, "s", consumer_type="Shared"):
                raise AssertionError("it was opened")
        with pytest.raises(ZeroDivisionError):
            async with client.subscribe(TOPIC, "s") as consumer:
                raise ZeroDivisionError
        assert consumer.is_closed

    run_with_broker(scenario)


@pytest.mark.parametrize("index", range(4))
def test_cancelled_while_it_opens_nothing_is_left_open(index) -> None:
    """Cancelled after each number of turns of the loop, until it is open before that."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        cancelled = entered = 0

        async def enter() -> None:
            nonlocal entered
            async with makers(client)[index]():
                entered += 1
                await asyncio.get_running_loop().create_future()

        for turns in range(TURNS_MAX):
            task = asyncio.ensure_future(enter())
            for _ in range(turns):
                await next_turn()
            task.cancel()
            before = entered
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += entered == before
            assert not client.lifetime.producers
            assert not client.lifetime.others
        assert cancelled

    run_with_broker(scenario)


def test_what_is_used_before_it_is_awaited_says_so() -> None:
    """Who moves over forgets an await: he heard of a just-started coroutine, to which nothing can be sent."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        for make in makers(client):
            opening = make()
            uses = [
                lambda it: it.send(b"x"),
                lambda it: it.send(b"x", partition_key="k"),
                lambda it: it.send_nowait(b"x"),
                lambda it: it.receive(5000),
                lambda it: it.topic(),
                lambda it: aiter(it),
            ]
            for use in uses:
                with pytest.raises((TypeError, AttributeError), match=r"it is not open: await it first"):
                    use(opening)
            assert not hasattr(opening, "topic")
            async with opening as opened:
                assert isinstance(opened, gc.TableView) or opened.topic() == TOPIC

    run_with_broker(scenario)


def test_one_that_is_never_used_warns() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        for make, name in zip(
            makers(client), ("create_producer", "subscribe", "create_reader", "create_table_view"), strict=True
        ):
            with pytest.warns(RuntimeWarning, match=rf"coroutine '{name}\w*' was never awaited"):
                make()

    run_with_broker(scenario)


def test_one_that_is_given_up_does_not_warn() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        for make in makers(client):
            opening = make()
            assert "to be awaited, or entered" in repr(opening)
            opening.close()
        garbage.collect()

    run_with_broker(scenario)
