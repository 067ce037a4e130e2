"""A read of many small commands: handled in turns of the loop, between which everybody else is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from geminga.broker.connection.back_pressure import TURN_COMMANDS_MAX, TURN_S_MAX, WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, encode_command
from support.house.stepping_clock import let_time_pass
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds

#: As many as one read of 256 KiB brings.
BURST = 15_000
IMPOSSIBLE_FRAME = b"\x7f\xff\xff\xff\x00\x00\x00\x04"


async def turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time


async def until_read_again(client: Client, turns_max: int) -> int:
    """How many turns of the loop it took."""
    for count in range(turns_max):
        if not client.transport.is_reading_paused:
            return count
        await turn()
    raise AssertionError(f"not read again within {turns_max} turns, paused for {client.connection.gate.reasons!r}")


def close_consumer_frame(request_id: int) -> bytes:
    """A command that is answered at once, under its request id."""
    request = pb.CommandCloseConsumer(consumer_id=9, request_id=request_id)
    return encode_command(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=request))


def answered(client: Client) -> list[int]:
    """Request ids of the answers received, in order."""
    return [command.success.request_id for command, _ in client.received if command.type == Type.SUCCESS]


def pongs(client: Client) -> int:
    return sum(command.type == Type.PONG for command, _ in client.received)


def test_others_are_served_in_every_turn_of_a_burst() -> None:
    async def scenario(world: BrokerWorld) -> None:
        greedy, other = await world.client(), await world.client()
        greedy.send_bytes(b"".join(map(close_consumer_frame, range(BURST))))
        done = len(answered(greedy))
        assert done == TURN_COMMANDS_MAX
        turns = 0
        while done < BURST:
            assert greedy.transport.is_reading_paused
            assert greedy.connection.gate.reasons == PauseReason.COMMANDS_LEFT
            other.send_bytes(PING_FRAME)
            await other.expect(Type.PONG)
            await turn()
            turns += 1
            assert len(answered(greedy)) - done <= 2 * TURN_COMMANDS_MAX  # expect() may take a turn, too
            done = len(answered(greedy))
        assert turns <= BURST // TURN_COMMANDS_MAX
        assert answered(greedy) == list(range(BURST))
        await until_read_again(greedy, 2)
        assert greedy.connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario)


@pytest.mark.parametrize(
    ("step_s", "commands_a_turn"),
    [(0.0, TURN_COMMANDS_MAX), (TURN_S_MAX / 9.5, 10), (2 * TURN_S_MAX, 1)],  # always one at least
)
def test_turn_ends_after_its_time(step_s: float, commands_a_turn: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        let_time_pass(world.broker, step_s)
        client = await world.client()
        count = 3 * commands_a_turn + 1
        client.send_bytes(b"".join(map(close_consumer_frame, range(count))))
        for turns in range(1, 5):
            assert answered(client) == list(range(min(turns * commands_a_turn, count)))
            await turn()
        await until_read_again(client, 2)

    run_with_broker(scenario)


def test_sends_of_several_producers_end_the_turn_after_its_time_too() -> None:
    async def scenario(world: BrokerWorld) -> None:
        let_time_pass(world.broker, 2 * TURN_S_MAX)
        client = await world.publisher(producer_id=1)
        await client.create_producer(producer_id=2)
        sends = [send_frame(index // 2, producer_id=1 + index % 2) for index in range(9)]
        broken = send_frame(5, b"damaged", producer_id=1)[:-1] + b"!"
        client.send_bytes(b"".join([*sends, broken, PING_FRAME]))
        assert client.connection.publishes.pending == 1
        await turn()
        assert client.connection.publishes.pending <= 2
        await client.expect(Type.PONG)
        assert client.connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario)


def test_sends_of_a_full_read_stay_one_append() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        calls = world.bookie.add_calls
        frame = send_frame(1, b"x" * 100)
        count = (256 << 10) // len(frame)
        client.send_bytes(b"".join(send_frame(index, b"x" * 100) for index in range(1, count + 1)))
        for index in range(1, count + 1):
            assert (await client.receipt()).sequence_id == index
        assert world.bookie.add_calls == calls + 1

    run_with_broker(scenario)


def test_commands_left_wait_for_the_other_reasons_not_to_read() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=2)
        await client.create_producer()
        await client.publish(0)
        world.bookie.holds_replies = True
        client.send_bytes(b"".join(send_frame(index) for index in range(1, 100)))
        for _ in range(20):
            await turn()
        # Bounded by the bound and one turn, however much one read brings.
        assert client.connection.publishes.pending <= 10 + 2
        assert client.connection.gate.reasons == PauseReason.PENDING_PUBLISHES | PauseReason.COMMANDS_LEFT
        # Its PONG would wait behind them: it counts as alive.
        await seconds(200)
        assert await client.connection.check_liveness()
        assert not client.is_closed
        world.bookie.holds_replies = False
        world.bookie.release()
        assert [(await client.receipt()).sequence_id for _ in range(1, 100)] == list(range(1, 100))
        await until_read_again(client, 10)
        assert client.connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario, pending_publishes_max=10)


def test_client_that_does_not_read_is_not_alive_for_the_commands_it_left() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=1)
        client.connection.pause_writing()
        client.transport.buffered_bytes = WRITE_BUFFER_STOP_READING_BYTES + 1
        client.send_bytes(PING_FRAME * 3)
        assert client.connection.gate.reasons == PauseReason.WRITE_BUFFER | PauseReason.COMMANDS_LEFT
        assert not await client.connection.check_liveness()
        await turn()
        assert not world.broker.connections.open
        assert pongs(client) == 1

    run_with_broker(scenario)


def test_keep_alive_goes_on_behind_a_burst() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=1)
        await client.expect(Type.PING)
        client.send_bytes(PING_FRAME * 5)
        await until_read_again(client, 10)
        await seconds(29)
        assert not client.is_closed
        await seconds(60)  # and then nothing was heard
        assert client.is_closed

    run_with_broker(scenario)


@pytest.mark.parametrize("end", [PING_FRAME + encode_command(pb.BaseCommand(type=Type.PONG)), IMPOSSIBLE_FRAME])
def test_what_breaks_the_protocol_is_found_in_its_turn(end: bytes, caplog: pytest.LogCaptureFixture) -> None:
    connect = pb.CommandConnect(client_version="again", protocol_version=21)
    again = encode_command(pb.BaseCommand(type=Type.CONNECT, connect=connect))

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=2)
        client.send_bytes(PING_FRAME * 5 + (end if end is IMPOSSIBLE_FRAME else again + end))
        assert pongs(client) == 2
        for _ in range(5):
            await turn()
        assert pongs(client) == 5
        assert client.is_closed
        assert not world.broker.connections.open

    run_with_broker(scenario)
    assert len([record for record in caplog.records if "closing connection" in record.message]) == 1


def test_lost_connection_leaves_after_what_it_sent_is_handled() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=3)
        await client.create_producer()
        topic = world.broker.topics[TOPIC]
        client.send_bytes(b"".join(send_frame(index) for index in range(10)))
        client.lose()
        await turn()
        assert topic.producers
        # Whoever waits for its end is told of it then.
        is_alive = client.connection.check_liveness()
        for _ in range(5):
            await turn()
        assert topic.producers == {}
        assert not world.broker.connections.open
        assert not await is_alive
        reader = await world.subscriber()
        payloads = [(await reader.expect_with_payload(Type.MESSAGE))[1] for _ in range(10)]
        assert len(payloads) == 10
        assert world.broker.publish_buffer.size_bytes == 0

    run_with_broker(scenario)


@pytest.mark.parametrize(
    "ends",
    [
        [Client.lose, lambda client: client.connection.abort("test")],
        [Client.lose, lambda client: client.connection.close("test")],
        [lambda client: client.connection.abort("test")],
        [lambda client: client.connection.close("test")],
        [lambda client: client.connection.close("test"), lambda client: client.connection.abort("test")],
    ],
)
@pytest.mark.parametrize("turns_between", [0, 1])
def test_connection_the_broker_closes_drops_what_is_left(
    ends: list[Callable[[Client], None]], turns_between: int
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client(turn_commands_max=1)
        client.send_bytes(PING_FRAME * 50)
        for end in ends:
            end(client)
            for _ in range(turns_between):
                await turn()
        for _ in range(3):
            await turn()
        assert pongs(client) <= 1 + len(ends) * turns_between
        assert not world.broker.connections.open
        # It is counted out once: the limit of connections from one address holds for those that come.
        await world.client()
        await world.client()
        assert len(world.broker.connections.open) == 2
        third = Client(world.broker)
        assert third.is_closed

    run_with_broker(scenario, connections_per_ip_max=2)
