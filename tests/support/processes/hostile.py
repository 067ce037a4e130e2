"""A client that has everything a client can have, and sends what none would; and a witness who looks on.

For the tests of ``tests/integration/hostile``: :class:`Session` is the hostile client in a sane state, :class:`Witness`
a well-behaved one on a topic of its own, :class:`Trial` feeds cases to a broker process and notes what they did to it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import Message
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.varint import encode_varint
from support.house.leaks import leaks_of
from support.processes.hostile_values import Case, changed, fill_required, type_of
from support.processes.raw_protocol import RawConnection, frame

Type = pb.BaseCommand
TOPIC: Final = "persistent://public/default/hostile"
WITNESS_TOPIC: Final = "persistent://public/default/witness"
#: The message id of a duplicate, -1:-1.
NOT_STORED: Final = ((1 << 64) - 1, (1 << 64) - 1)
#: A consumer of each type; its id is the number of the type.
TYPES: Final = (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared, pb.CommandSubscribe.Failover)
TYPES_ALL: Final = (*TYPES, pb.CommandSubscribe.Key_Shared)
PING: Final = frame(pb.BaseCommand(type=Type.PING, ping=pb.CommandPing()))
#: Seconds within which a witness must have published, received and acknowledged.
LIVENESS_S: Final = 1.0
#: Commands after which the session is not what it was.
ENDING: Final = frozenset(
    ("close_producer", "close_consumer", "unsubscribe", "seek", "producer", "subscribe", "connect")
)
#: What the log must not say.
COMPLAINTS: Final = re.compile(r"Traceback|Error:| ERROR geminga| broke in | failed: ")


def command(kind: int, name: str, message: Message) -> pb.BaseCommand:
    """A command of a type."""
    made = pb.BaseCommand(type=kind)
    getattr(made, name).CopyFrom(message)
    return made


class Session:
    """A connection with a producer, a consumer of each type, and messages under way."""

    def __init__(self, port: int) -> None:
        self.connection = RawConnection(port, timeout_s=20.0)
        self.is_open = True
        #: A command ended part of it: it is not what it was.
        self.is_spent = False
        self._requests = 100
        self._sequence = 0
        #: Of the newest message published here.
        self.position = (0, 0)
        #: Of the newest message that came, by consumer.
        self.seen: dict[int, tuple[int, int]] = {}
        self.connection.send(self._produce() + b"".join(map(self._subscribe, TYPES_ALL)))
        pending = {1, *(10 + sub_type for sub_type in TYPES_ALL)}
        while pending:
            answer = self.connection.receive()
            assert answer is not None, "the broker closed a sane connection"
            if answer.type == Type.ERROR:
                # Those of the session before may still be there.
                assert answer.error.error in (pb.ConsumerBusy, pb.ProducerBusy, pb.ProducerFenced), str(answer)
                request_id = answer.error.request_id
                self.connection.send(self._produce() if request_id == 1 else self._subscribe(request_id - 10))
            elif answer.type == Type.SUCCESS:
                pending.discard(answer.success.request_id)
                self.connection.send(_flow(answer.success.request_id - 10))
            elif answer.type == Type.PRODUCER_SUCCESS:
                pending.discard(answer.producer_success.request_id)
            elif answer.type == Type.MESSAGE:
                self._acknowledge(answer.message)
        assert self.publish()

    @staticmethod
    def _produce() -> bytes:
        return frame(command(Type.PRODUCER, "producer", pb.CommandProducer(topic=TOPIC, producer_id=0, request_id=1)))

    @staticmethod
    def _subscribe(sub_type: int) -> bytes:
        request = pb.CommandSubscribe(
            topic=TOPIC,
            subscription=f"hostile-{sub_type}",
            subType=sub_type,
            consumer_id=sub_type,
            request_id=10 + sub_type,
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        return frame(command(Type.SUBSCRIBE, "subscribe", request))

    def publish(self) -> bool:
        """One good message; False if deduplication does not take it, after a sequence id that was sent before."""
        sequence_id = self.next_sequence_id()
        metadata = pb.MessageMetadata(producer_name="hostile", sequence_id=sequence_id, publish_time=1)
        self.connection.send(
            send_frame(pb.CommandSend(producer_id=0, sequence_id=sequence_id), encode_entry(metadata, b"m"))
        )
        while (answer := self.connection.receive()) is not None:
            if answer.type == Type.SEND_RECEIPT and answer.send_receipt.sequence_id == sequence_id:
                position = (answer.send_receipt.message_id.ledgerId, answer.send_receipt.message_id.entryId)
                if position == NOT_STORED:
                    return False
                self.position = position
                return True
            if answer.type in (Type.SEND_ERROR, Type.CLOSE_PRODUCER):
                self.is_spent = True
                return False
            if answer.type == Type.MESSAGE:
                self._acknowledge(answer.message)
        raise AssertionError("no receipt for a good message")

    def next_sequence_id(self) -> int:
        """One behind the last."""
        self._sequence += 1
        return self._sequence

    def next_request_id(self) -> int:
        """One behind the last."""
        self._requests += 1
        return self._requests

    def attack(self, data: bytes, name: str) -> None:
        """Send a frame; return when the broker has handled it, and all messages that came were acknowledged."""
        self.connection.send(data + PING)
        if name in ENDING:
            self.is_spent = True
        self._pump()

    def _pump(self) -> None:
        answer: pb.BaseCommand | None
        try:
            while (answer := self.connection.receive()) is not None:
                assert not leaks_of(answer), str(answer)
                if answer.type == Type.PONG:
                    return
                if answer.type == Type.MESSAGE:
                    self._acknowledge(answer.message)
                elif answer.type in (Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER):
                    self.is_spent = True
        except OSError:
            pass
        self.is_open = False

    def _acknowledge(self, message: pb.CommandMessage) -> None:
        """In part, then whole."""
        acks = []
        for ack_set in ([-2], []):
            ack = pb.CommandAck(consumer_id=message.consumer_id, ack_type=pb.CommandAck.Individual)
            ack.message_id.add(
                ledgerId=message.message_id.ledgerId, entryId=message.message_id.entryId, ack_set=ack_set
            )
            acks.append(frame(command(Type.ACK, "ack", ack)))
        self.seen[message.consumer_id] = (message.message_id.ledgerId, message.message_id.entryId)
        # As many permits as the largest batch may have taken.
        self.connection.send(b"".join(acks) + _flow(message.consumer_id, 2000))

    def settle(self) -> None:
        """Until what was sent before has come back and is acknowledged."""
        if self.is_open:
            self.connection.send(PING)
            self._pump()

    def receive_newest(self) -> None:
        """Until every consumer has received, and acknowledged, the message that was published last."""
        while any(self.seen.get(consumer_id) != self.position for consumer_id in TYPES_ALL):
            answer = self.connection.receive()
            assert answer is not None, "the broker closed a sane connection"
            if answer.type == Type.MESSAGE:
                self._acknowledge(answer.message)

    def close(self) -> None:
        """Leave."""
        self.connection.close()


def _flow(consumer_id: int, permits: int = 50) -> bytes:
    return frame(command(Type.FLOW, "flow", pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits)))


def send_frame(send: Message, entry: bytes) -> bytes:
    """SEND with what follows it."""
    return frame(command(Type.SEND, "send", send), entry)


def raw_frame(kind: int, body: bytes, payload: bytes = b"") -> bytes:
    """A command whose message are these bytes."""
    data = b"\x08" + encode_varint(kind) + encode_varint(kind << 3 | 2) + encode_varint(len(body)) + body
    return (len(data) + 4 + len(payload)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + payload


def command_frame(session: Session, case: Case, consumer_id: int) -> bytes:
    """The frame of a case whose path begins with a command: everything but the field fits the session."""
    name = case.path[0].name
    message = getattr(pb.BaseCommand(), name)
    message.SetInParent()
    fill_required(message)
    _suit(message, name, session, consumer_id)
    body = changed(message, case.path[1:], case.value) if len(case.path) > 1 else case.value
    payload = b""
    if name == "send":
        metadata = pb.MessageMetadata(producer_name="hostile", sequence_id=message.sequence_id, publish_time=1)
        payload = encode_entry(metadata, b"m")
    return raw_frame(type_of(case.path[0]), body, payload)


def _suit(message: Message, name: str, session: Session, consumer_id: int) -> None:
    ledger_id, entry_id = session.position
    values = {
        "consumer_id": consumer_id,
        "request_id": session.next_request_id(),
        "sequence_id": session.next_sequence_id(),
        "watcher_id": 1,
    }
    if name in ("producer", "subscribe"):
        values |= {"producer_id": 7, "consumer_id": 7, "subType": consumer_id}
    for key, value in values.items():
        if key in message.DESCRIPTOR.fields_by_name:
            setattr(message, key, value)
    if name in ("ack", "redeliverUnacknowledgedMessages"):
        ids = message.message_id if name == "ack" else message.message_ids  # type: ignore[attr-defined]
        ids.add(ledgerId=ledger_id, entryId=entry_id)
    elif name == "seek":
        message.message_id.ledgerId, message.message_id.entryId = ledger_id, entry_id  # type: ignore[attr-defined]


def metadata_frame(session: Session, case: Case) -> bytes:
    """A SEND, with a right checksum, whose message metadata have the changed field; half of them batches."""
    sequence_id = session.next_sequence_id()
    metadata = pb.MessageMetadata(producer_name="hostile", sequence_id=sequence_id, publish_time=1)
    if sequence_id % 2:
        metadata.num_messages_in_batch = 3
    encoded = changed(metadata, case.path, case.value)
    return _send(sequence_id, encoded, _batch(3) if sequence_id % 2 else b"m")


def single_metadata_frame(session: Session, case: Case) -> bytes:
    """A batch of two whose second message has the changed field."""
    sequence_id = session.next_sequence_id()
    metadata = pb.MessageMetadata(
        producer_name="hostile", sequence_id=sequence_id, publish_time=1, num_messages_in_batch=2
    )
    single = changed(pb.SingleMessageMetadata(payload_size=1), case.path, case.value)
    return _send(sequence_id, metadata.SerializeToString(), _batch(1) + len(single).to_bytes(4, "big") + single + b"m")


def _batch(count: int) -> bytes:
    single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    return (len(single).to_bytes(4, "big") + single + b"m") * count


def _send(sequence_id: int, metadata: bytes, payload: bytes) -> bytes:
    import crc32c

    rest = len(metadata).to_bytes(4, "big") + metadata + payload
    entry = b"\x0e\x01" + crc32c.crc32c(rest).to_bytes(4, "big") + rest
    return send_frame(pb.CommandSend(producer_id=0, sequence_id=sequence_id), entry)


class Witness:
    """A client on a topic of its own that publishes, receives and acknowledges, and looks at the clock."""

    def __init__(self, port: int) -> None:
        self._connection = RawConnection(port, timeout_s=20.0)
        self._sequence = 0
        producer = pb.CommandProducer(topic=WITNESS_TOPIC, producer_id=0, request_id=1)
        self._connection.send(frame(command(Type.PRODUCER, "producer", producer)))
        self._connection.expect(Type.PRODUCER_SUCCESS)
        subscribe = pb.CommandSubscribe(
            topic=WITNESS_TOPIC, subscription="w", subType=1, consumer_id=1, request_id=2, initialPosition=1
        )
        self._connection.send(frame(command(Type.SUBSCRIBE, "subscribe", subscribe)))
        self._connection.expect(Type.SUCCESS)
        self._connection.send(_flow(1, 1 << 20))
        #: The longest look so far, seconds.
        self.slowest_s = 0.0

    def look(self) -> None:
        """AssertionError if the broker does not serve another client in time."""
        took_s = self._round_trip()
        if took_s > LIVENESS_S:
            # A machine with other work to do stalls once; a broker that is held by a client stays so.
            took_s = self._round_trip()
            assert took_s <= LIVENESS_S, f"another client was served after {took_s:.2f} s"
        self.slowest_s = max(self.slowest_s, took_s)

    def _round_trip(self) -> float:
        began = time.monotonic()
        self._sequence += 1
        metadata = pb.MessageMetadata(producer_name="w", sequence_id=self._sequence, publish_time=1)
        send = pb.CommandSend(producer_id=0, sequence_id=self._sequence)
        self._connection.send(send_frame(send, encode_entry(metadata, b"w")))
        wanted = {Type.SEND_RECEIPT, Type.MESSAGE, Type.ACK_RESPONSE}
        while wanted:
            answer = self._connection.receive()
            assert answer is not None, "a well-behaved connection was closed"
            wanted.discard(answer.type)
            if answer.type == Type.MESSAGE:
                ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=9)
                ack.message_id.add().CopyFrom(answer.message.message_id)
                self._connection.send(frame(command(Type.ACK, "ack", ack)))
        return time.monotonic() - began

    def close(self) -> None:
        """Leave."""
        self._connection.close()


@dataclass
class Trial:
    """Cases fed to a broker process, and what they did to it."""

    process: StandaloneProcess
    #: A look by the witness, and one at the hostile topic, after so many cases.
    cases_per_look: int = 25
    tried: int = 0
    fields: set[str] = field(default_factory=set)
    deaths: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _session: Session | None = None
    _witness: Witness | None = None
    _log_read: int = 0

    def run(self, cases: Iterable[Case], make: Callable[[Session, Case], bytes]) -> None:
        """Try each case in a sane session."""
        for case in cases:
            self.tried += 1
            self.fields.add(case.field_name)
            try:
                self._try(case, make)
            except (OSError, AssertionError) as error:
                if self.process.is_running:
                    raise AssertionError(f"{case}: {error}") from error
            if not self.process.is_running:
                self.deaths.append(str(case))
                self._begin_anew()
            self._read_log(case)

    def _try(self, case: Case, make: Callable[[Session, Case], bytes]) -> None:
        session = self._session
        if session is None or session.is_spent or not session.is_open:
            if session is not None:
                session.close()
            session = self._session = Session(self.process.broker_port)
        session.attack(make(session, case), case.path[0].name)
        if self._witness is None:
            self._witness = Witness(self.process.broker_port)
        if self.tried % self.cases_per_look == 0:
            session.settle()
            if session.is_open and not session.is_spent and session.publish():
                session.receive_newest()
            self._witness.look()

    def finish(self) -> None:
        """The last look."""
        if self._session is not None:
            self._session.close()
        assert self._witness is not None
        self._witness.look()
        # The topic that was attacked goes on, too.
        session = Session(self.process.broker_port)
        session.receive_newest()
        session.close()
        self._witness.close()

    @property
    def slowest_s(self) -> float:
        """The longest look of the witness."""
        return self._witness.slowest_s if self._witness is not None else 0.0

    def _begin_anew(self) -> None:
        self._session = self._witness = None
        self.process.start()

    def _read_log(self, case: Case) -> None:
        if self.process.log.stat().st_size > self._log_read:
            with self.process.log.open("rb") as log:
                log.seek(self._log_read)
                data = log.read()
                self._log_read = log.tell()
            for line in data.decode(errors="replace").splitlines():
                if COMPLAINTS.search(line):
                    self.complaints.append(f"{case}: {line[:300]}")
