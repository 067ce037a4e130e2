"""The commands of a connection are the same, in the same order, for any bound of a turn and any cut of the bytes."""

from __future__ import annotations

import asyncio
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.connection.back_pressure import TURN_COMMANDS_MAX, TURN_S_MAX
from geminga.broker.connection.connection import Connection
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.broker.connection.services import Commands
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from geminga.wire.pulsar.frame import encode_frame
from support.house.examples import many
from support.house.stepping_clock import let_time_pass
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds

#: What is drawn for one command of the stream.
KINDS = st.sampled_from(
    ["ping", "question", "ack", "flow", "send", "send", "other send", "other send", "bad checksum", "close producer"]
)
#: How the stream ends.
ENDS = st.sampled_from(["open", "open", "lost", "broken command", "impossible frame", "incomplete frame"])


def command(kind: int, **field) -> bytes:
    return encode_command(pb.BaseCommand(type=kind, **field))


def frame_of(number: int, kind: str) -> bytes:
    """The command at place ``number`` of the stream; its number is in it wherever it has room for one."""
    if kind == "ping":
        return command(Type.PING, ping=pb.CommandPing())
    if kind == "question":
        return command(Type.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(consumer_id=9, request_id=number))
    if kind == "ack":
        message_id = pb.MessageIdData(ledgerId=0, entryId=number)
        return command(Type.ACK, ack=pb.CommandAck(consumer_id=9, ack_type=0, message_id=[message_id]))
    if kind == "flow":
        return command(Type.FLOW, flow=pb.CommandFlow(consumer_id=9, messagePermits=number + 1))
    if kind == "close producer":
        return command(Type.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=2, request_id=number))
    frame = send_frame(number, b"%d" % number, producer_id=2 if kind == "other send" else 1)
    return frame[:-1] + bytes((frame[-1] ^ 1,)) if kind == "bad checksum" else frame


ENDINGS = {
    "open": b"",
    "lost": b"",
    "broken command": encode_frame(b"\x08\x5a") + command(Type.PING, ping=pb.CommandPing()),
    "impossible frame": b"\x7f\xff\xff\xff\x00\x00\x00\x04",
    "incomplete frame": send_frame(0)[:20],
}


class Recorded:
    """The same commands; what reaches them is noted."""

    def __init__(self, commands: Commands[Connection], log: list[object]) -> None:
        self._commands = commands
        self._log = log
        self.redeliver = commands.redeliver
        self.send = commands.send

    def run(self, connection: Connection, decoded: pb.BaseCommand) -> bool:
        self._log.append(str(decoded))
        return self._commands.run(connection, decoded)

    def flow(self, connection: Connection, consumer_id: int, permits: int) -> None:
        self._log.append(("flow", consumer_id, permits))
        self._commands.flow(connection, consumer_id, permits)

    def ack(self, connection: Connection, raw: bytes) -> None:
        self._log.append(("ack", raw))
        self._commands.ack(connection, raw)


def outcome(
    stream: bytes, end: str, cuts: list[int], *, waits: int, turn_commands_max: int, step_s: float
) -> dict[str, object]:
    """What a broker did with the stream. ``waits``: every so many pieces the loop goes on, 0: never."""
    handled: list[object] = []

    async def scenario(world: BrokerWorld) -> dict[str, object]:
        let_time_pass(world.broker, step_s)
        client = await world.client(turn_commands_max=turn_commands_max)
        await client.create_producer(producer_id=1)
        await client.create_producer(producer_id=2)
        client.connection.commands = Recorded(client.connection.commands, handled)
        places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        for count, (start, stop) in enumerate(itertools.pairwise(places), 1):
            if client.is_closed:
                break  # a closed socket brings nothing
            client.send_bytes(stream[start:stop])
            if waits and count % waits == 0:
                await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time
        if end == "lost":
            client.lose()
        await seconds(0.5)
        connection = client.connection
        if not client.is_closed:
            assert connection.gate.reasons == PauseReason.NONE
            assert not client.transport.is_reading_paused
        reader = await world.subscriber()
        await seconds(0.5)
        return {
            "handled": handled,
            "stored": [payload for kind, payload in reader.received if kind.type == Type.MESSAGE],
            # One that is closed drops answers that are not written yet: which ones is a matter of time.
            "answers": [] if client.is_closed else sorted(str(answer) for answer, _ in client.received),
            "is closed": client.is_closed,
            "pending": connection.publishes.pending,
            "connections": len(world.broker.connections.open),
        }

    return run_with_broker(scenario)


@settings(max_examples=many(200), deadline=None)
@given(
    st.lists(KINDS, min_size=8, max_size=60),
    ENDS,
    st.lists(st.integers(0, 1 << 20), max_size=12),
    st.integers(0, 3),
    st.integers(1, 12),
    st.sampled_from([0.0, TURN_S_MAX / 5, 2 * TURN_S_MAX]),
)
def test_commands_are_the_same_for_any_bound_and_any_cut(kinds, end, cuts, waits, turn_commands_max, step_s) -> None:
    stream = b"".join(frame_of(number, kind) for number, kind in enumerate(kinds)) + ENDINGS[end]
    expected = outcome(stream, end, [], waits=0, turn_commands_max=TURN_COMMANDS_MAX, step_s=0.0)
    got = outcome(stream, end, cuts, waits=waits, turn_commands_max=turn_commands_max, step_s=step_s)
    assert got == expected
