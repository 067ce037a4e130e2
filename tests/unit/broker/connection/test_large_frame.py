"""A large frame that is not whole, between the room of all connections and the gate of its own."""

from __future__ import annotations

import asyncio

from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.large_frame import LargeFrame
from geminga.runtime.frame_room import FrameRoom

MEBIBYTE = 1 << 20


def test_frame_without_room_is_not_read_on_until_another_has_ended() -> None:
    async def scenario() -> None:
        room = FrameRoom(lambda: 0.0, MEBIBYTE)
        gates = [ReadGate(lambda reasons: None) for _ in range(2)]
        cut_off: list[str] = []
        first, second = [LargeFrame(room, gate, cut_off.append, MEBIBYTE) for gate in gates]
        assert [gate.reasons for gate in gates] == [PauseReason.NONE, PauseReason.FRAME_BUFFER]
        assert (first.is_heard, second.is_heard) == (True, False)
        first.end()
        assert [gate.reasons for gate in gates] == [PauseReason.NONE, PauseReason.NONE]
        second.end()
        assert (room.size_bytes, cut_off) == (0, [])
        room.close()

    asyncio.run(scenario())


def test_frame_beyond_those_that_may_wait_is_cut_off() -> None:
    async def scenario() -> None:
        room = FrameRoom(lambda: 0.0, MEBIBYTE, waiting_max=0)
        gate, cut_off = ReadGate(lambda reasons: None), []
        held = LargeFrame(room, gate, cut_off.append, MEBIBYTE)
        assert cut_off == []
        LargeFrame(room, gate, cut_off.append, MEBIBYTE)
        assert cut_off == ["a large frame, and too many others wait for room"]
        held.end()

    asyncio.run(scenario())
