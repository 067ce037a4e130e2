"""Halves of large frames: none before the handshake, few together after it, and all that go on become whole."""

from __future__ import annotations

import asyncio

from geminga.model.limits import FRAME_PADDING_BYTES
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds

MEBIBYTE = 1024 * 1024
READ_BYTES = 256 * 1024
PAYLOAD_BYTES = 4 * MEBIBYTE
CLIENTS = 30


async def turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time


def buffered(clients: list[Client]) -> int:
    return sum(0 if client.is_closed else client.connection._decoder.buffered_bytes for client in clients)


def test_nobody_begins_a_large_frame_before_the_handshake() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [Client(world.broker, 50000 + i) for i in range(60)]
        half = send_frame(0, b"x" * PAYLOAD_BYTES)[: PAYLOAD_BYTES // 2]
        for client in clients:
            for start in range(0, len(half), READ_BYTES):
                if not client.is_closed and not client.transport.is_reading_paused:
                    client.send_bytes(half[start : start + READ_BYTES])
        assert buffered(clients) <= 60 * (64 * 1024 + FRAME_PADDING_BYTES)
        await turn()

    run_with_broker(scenario)


def test_half_frames_of_all_connections_have_one_bound_and_all_become_whole() -> None:
    async def scenario(world: BrokerWorld) -> None:
        clients = [await world.client() for _ in range(CLIENTS)]
        left: dict[Client, list[bytes]] = {}
        for client in clients:
            await client.create_producer()
            frame = send_frame(0, b"x" * PAYLOAD_BYTES)
            left[client] = [frame[start : start + READ_BYTES] for start in range(0, len(frame), READ_BYTES)]
        most = 0
        while any(left.values()):
            for client, reads in left.items():
                # All but the last read of everybody first: as many halves as there may be.
                if reads and not client.transport.is_reading_paused and (len(reads) > 1 or not more_to_begin(left)):
                    client.send_bytes(reads.pop(0))
            most = max(most, buffered(clients))
            await turn()
        for client in clients:
            assert (await client.expect(Type.SEND_RECEIPT)).send_receipt.sequence_id == 0
        assert most <= 64 * MEBIBYTE + CLIENTS * READ_BYTES
        assert world.broker.frame_room.size_bytes == 0

    def more_to_begin(left) -> bool:
        return any(len(reads) > 1 and not client.transport.is_reading_paused for client, reads in left.items())

    run_with_broker(scenario)


def test_who_stops_in_the_middle_of_a_frame_is_closed_while_others_wait() -> None:
    async def scenario(world: BrokerWorld) -> None:
        half = send_frame(0, b"x" * PAYLOAD_BYTES)[: PAYLOAD_BYTES // 2]
        stopped = [await world.client() for _ in range(15)]
        for client in stopped:
            await client.create_producer()
            client.send_bytes(half)
        await seconds(20)
        assert not any(client.is_closed for client in stopped)  # nobody else needs the room
        other = await world.publisher()
        frame = send_frame(7, b"y" * PAYLOAD_BYTES)
        other.send_bytes(frame[:READ_BYTES])
        assert other.transport.is_reading_paused
        await seconds(7)
        assert all(client.is_closed for client in stopped)
        assert not other.transport.is_reading_paused
        other.send_bytes(frame[READ_BYTES:])
        assert (await other.expect(Type.SEND_RECEIPT)).send_receipt.sequence_id == 7

    run_with_broker(scenario, keep_alive_interval_s=3600)
