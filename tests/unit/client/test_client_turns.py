"""A read of many small frames in the client: handled in turns of the loop, between which the application goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geminga.client as gc
from geminga import sim
from geminga.client._transport.connection import TURN_ANSWERS_MAX, TURN_FRAMES_MAX, WRITTEN_MUCH, ClientConnection
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from support.worlds.broker_world import MemoryTransport

BURST = 15_000
UNHEARD_OF = commands.encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND))
IMPOSSIBLE_FRAME = b"\x7f\xff\xff\xff\x00\x00\x00\x04"


class Receipts:
    """Stands where a producer does, and notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.lost: list[gc.PulsarException] = []

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None:
        self.heard.append(sequence_id)

    def on_send_error(self, sequence_id: int, error: gc.PulsarException) -> None:
        raise AssertionError(sequence_id)

    def on_writable(self) -> None:
        pass

    def on_closed_by_broker(self, url: str) -> None:
        raise AssertionError(url)

    def on_connection_lost(self, error: gc.PulsarException) -> None:
        self.lost.append(error)


class Stage:
    """A connection that is connected, its transport, and a producer on it."""

    def __init__(self) -> None:
        self.connection = ClientConnection(
            "pulsar://broker:6650", authentication=None, keep_alive_ms=1000, next_request_id=int, on_lost=lambda _: None
        )
        self.transport = MemoryTransport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.arrive(commands.connected("broker", 21, 5 << 20, pb.FeatureFlags()))
        self.receipts = Receipts()
        self.connection.listeners.register_producer(1, self.receipts)

    def arrive(self, data: bytes) -> None:
        """As much as there is room for at a time."""
        while data and not self.transport.is_closing():
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)


async def next_turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time


def receipts(count: int) -> bytes:
    return encode_send_receipts(1, 7, 0, 1, [(index, index) for index in range(count)])


def run_on_stage(scenario: Callable[[Stage], object]) -> None:
    async def main(world: sim.SimWorld) -> None:
        await scenario(Stage())

    sim.run(main)


def test_application_goes_on_in_every_turn_of_a_burst() -> None:
    async def scenario(stage: Stage) -> None:
        stage.arrive(receipts(BURST))
        done, turns = 0, 0
        while (heard := len(stage.receipts.heard)) < BURST:
            assert heard - done <= TURN_FRAMES_MAX
            done = heard
            assert stage.transport.is_reading_paused
            await next_turn()
            turns += 1
        assert turns <= BURST // TURN_FRAMES_MAX + 2
        assert stage.receipts.heard == list(range(BURST))
        assert not stage.transport.is_reading_paused
        stage.arrive(commands.PING_FRAME)
        await next_turn()
        assert stage.transport.written[-1] == commands.PONG_FRAME
        stage.connection.close()

    run_on_stage(scenario)


@pytest.mark.parametrize("written", [1, WRITTEN_MUCH])
def test_answers_that_much_is_written_after_are_heard_few_at_a_time(written: int) -> None:
    """Sixteen transactions that begin at once: what the first ones send leaves before the others go on."""
    count = 2 * TURN_ANSWERS_MAX

    async def scenario(stage: Stage) -> None:
        connection = stage.connection
        sent: list[int] = []

        async def lane(number: int) -> None:
            command = pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=number, tc_id=0))
            await connection.request(command, number, None, is_urgent=False)
            for _ in range(written):
                connection.write(b"frame%d;" % number)
            sent.append(number)

        lanes = [asyncio.create_task(lane(number)) for number in range(count)]  # noqa: TID251  # of the test
        await next_turn()
        await next_turn()
        already = len(b"".join(stage.transport.written))
        answers = b"".join(
            commands.encode_command(
                pb.BaseCommand(
                    type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=pb.CommandNewTxnResponse(request_id=number)
                )
            )
            for number in range(count)
        )
        stage.arrive(answers)
        left_at_halftime = False
        while len(sent) < count:
            await next_turn()
            left = b"".join(stage.transport.written)[already:]
            left_at_halftime |= len(sent) < count and left.count(b"frame0;") == written
        assert sent == list(range(count))
        await next_turn()
        left = b"".join(stage.transport.written)[already:]
        assert all(left.count(b"frame%d;" % number) == written for number in range(count))
        assert left_at_halftime is (written == WRITTEN_MUCH)
        await asyncio.gather(*lanes)
        connection.close()

    run_on_stage(scenario)


def test_receipts_of_a_connection_that_is_lost_are_heard() -> None:
    async def scenario(stage: Stage) -> None:
        stage.arrive(receipts(BURST))
        stage.connection.connection_lost(None)
        assert stage.receipts.heard == list(range(BURST))
        assert len(stage.receipts.lost) == 1
        await next_turn()
        assert len(stage.receipts.lost) == 1

    run_on_stage(scenario)


@pytest.mark.parametrize("end", [UNHEARD_OF + receipts(1), IMPOSSIBLE_FRAME])
def test_what_breaks_the_protocol_is_found_behind_what_came_before(end: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        stage.arrive(receipts(3 * TURN_FRAMES_MAX) + end)
        assert not stage.connection.is_closed
        for _ in range(5):
            await next_turn()
        assert stage.receipts.heard == list(range(3 * TURN_FRAMES_MAX))
        assert stage.connection.is_closed
        assert [type(error) for error in stage.receipts.lost] == [gc.ReadError]

    run_on_stage(scenario)


def test_closed_connection_drops_what_is_left() -> None:
    async def scenario(stage: Stage) -> None:
        stage.arrive(receipts(3 * TURN_FRAMES_MAX))
        stage.connection.close()
        for _ in range(5):
            await next_turn()
        assert stage.receipts.heard == list(range(TURN_FRAMES_MAX))

    run_on_stage(scenario)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40_000), max_size=8), st.integers(0, 3 * TURN_FRAMES_MAX), st.integers(0, 3))
def test_frames_are_the_same_for_any_cut(cuts: list[int], count: int, waits: int) -> None:
    async def scenario(stage: Stage) -> None:
        data = receipts(count)
        for number, cut in enumerate(cuts, 1):
            stage.arrive(data[:cut])
            data = data[cut:]
            if waits and number % waits == 0:
                await next_turn()
        stage.arrive(data)
        for _ in range(20):
            await next_turn()
        assert stage.receipts.heard == list(range(count))
        assert not stage.transport.is_reading_paused
        stage.connection.close()

    run_on_stage(scenario)


def test_keep_alive_counts_what_waits() -> None:
    async def scenario(stage: Stage) -> None:
        stage.arrive(receipts(BURST))
        while len(stage.receipts.heard) < BURST:
            await next_turn()
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1.5, future.set_result, None)
        await future
        assert not stage.connection.is_closed
        stage.connection.close()

    run_on_stage(scenario)
