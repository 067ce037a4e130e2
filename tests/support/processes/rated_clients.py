"""Clients that send as fast as they are read, and what of it a broker took when; all in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import Client
from support.worlds.policy_levels import seconds

#: Bytes of one read of a socket.
READ_BYTES = 64 * 1024
#: How often a client looks whether it is read again, seconds.
LOOK_S = 0.001


class EagerClient:
    """Sends bytes as a socket brings them: in reads, none of them while the broker does not read."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_done = False

    def start(self, frames: Sequence[bytes]) -> asyncio.Task[None]:
        """Send ``frames``; the task ends when they were read."""
        return spawn(self._send(b"".join(frames)), name="eager client")

    async def _send(self, data: bytes) -> None:
        transport = self.client.transport
        for start in range(0, len(data), READ_BYTES):
            while transport.is_reading_paused and not self.client.is_closed:
                await seconds(LOOK_S)
            if self.client.is_closed:
                return
            self.client.send_bytes(data[start : start + READ_BYTES])
        self.is_done = True


def receipts(client: Client) -> list[int]:
    """Sequence ids of the receipts that came, in order; they are taken."""
    found = [
        command.send_receipt.sequence_id
        for command, _ in client.received
        if command.type == pb.BaseCommand.SEND_RECEIPT
    ]
    client.received.clear()
    return found
