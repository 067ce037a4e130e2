"""When a connection is not read."""

from __future__ import annotations

import asyncio

from geminga.broker.connection.back_pressure import REQUESTS_PENDING_MAX
from geminga.broker.connection.core.read_gate import PauseReason
from support.worlds.broker_world import BrokerWorld, run_with_broker, send_frame
from support.worlds.policy_levels import seconds


def test_too_many_pending_publishes_pause_reading_until_half_are_answered() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        world.bookie.holds_replies = True
        client.send_bytes(b"".join(send_frame(index) for index in range(1, 11)))
        assert not client.transport.is_reading_paused
        client.send_message(11)
        assert client.transport.is_reading_paused
        assert client.connection.gate.reasons == PauseReason.PENDING_PUBLISHES
        world.bookie.holds_replies = False
        world.bookie.release()
        for index in range(1, 12):
            assert (await client.receipt()).sequence_id == index
        assert not client.transport.is_reading_paused
        assert client.connection.publishes.pending == 0

    run_with_broker(scenario, pending_publishes_max=10)


def test_full_publish_buffer_pauses_publishers_until_it_is_half_empty() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        world.bookie.holds_replies = True
        client.send_message(1, b"x" * (1 << 20))
        assert client.connection.gate.reasons == PauseReason.PUBLISH_BUFFER
        world.bookie.holds_replies = False
        world.bookie.release()
        await client.receipt()
        assert client.connection.gate.reasons == PauseReason.NONE
        assert world.broker.publish_buffer.size_bytes == 0

    run_with_broker(scenario, publish_buffer_mb=1)


def test_publishers_beyond_the_publish_buffer_go_on_together_at_half_of_it_and_no_sooner() -> None:
    bound, half = 1 << 20, 1 << 19

    async def scenario(world: BrokerWorld) -> None:
        first, second = [(await world.client()).connection for _ in range(2)]
        first.publishes.publish_started(1, bound)
        assert first.gate.reasons == PauseReason.NONE  # at the bound, not beyond it
        second.publishes.publish_started(1, 1)
        assert (first.gate.reasons, second.gate.reasons) == (PauseReason.NONE, PauseReason.PUBLISH_BUFFER)
        first.publishes.publish_started(1, 1)
        assert first.gate.reasons == PauseReason.PUBLISH_BUFFER
        first.publishes.publish_finished(1, half + 1)
        assert first.gate.reasons == second.gate.reasons == PauseReason.PUBLISH_BUFFER
        first.publishes.publish_finished(1, 1)
        assert first.gate.reasons == second.gate.reasons == PauseReason.NONE
        assert world.broker.publish_buffer.size_bytes == half
        second.publishes.publish_finished(1, half)

    run_with_broker(scenario, publish_buffer_mb=1)


def test_too_many_requests_under_way_pause_reading_until_half_are_done() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        connection = client.connection
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def request() -> None:
            await asyncio.shield(done)

        for number in range(REQUESTS_PENDING_MAX):
            connection.run(request(), f"request {number}")
        assert not client.transport.is_reading_paused
        connection.run(request(), "one too many")
        assert client.transport.is_reading_paused
        assert connection.gate.reasons == PauseReason.PENDING_REQUESTS
        done.set_result(None)
        await seconds(0.001)
        assert not client.transport.is_reading_paused

    run_with_broker(scenario)


def test_reading_goes_on_when_no_reason_is_left() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        connection = client.connection
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def command() -> None:
            await asyncio.shield(done)

        connection.run_in_turns(command())
        connection.gate.hold(PauseReason.FRAME_BUFFER)
        assert connection.gate.reasons == PauseReason.COMMAND_UNDER_WAY | PauseReason.FRAME_BUFFER
        connection.gate.free(PauseReason.FRAME_BUFFER)
        assert client.transport.is_reading_paused
        done.set_result(None)
        await seconds(0.001)
        assert not client.transport.is_reading_paused
        assert connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario)
