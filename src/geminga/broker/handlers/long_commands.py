"""ACK and REDELIVER of very many message ids, or of ack sets that must be checked: in several turns of the loop.

The connection handles nothing else meanwhile, so that what was sent behind such a command finds it done. Whatever it
changes, it changes piece by piece; an ACK that asks for a response gets it when all pieces are durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from geminga.broker.core.ack_properties import ack_properties
from geminga.broker.core.ack_set import WORDS_MAX
from geminga.broker.subscription import acknowledgment
from geminga.broker.subscription.ack_sets import fitting
from geminga.broker.subscription.consumer import NO_EPOCH, Consumer, ConsumerConnection, ConsumerMembers
from geminga.broker.subscription.messages import position_from
from geminga.broker.subscription.subscription import Subscription
from geminga.model import Position
from geminga.model.errors import ConsumerNotFoundError, GemingaError, NotAllowedError, ProtocolError
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import Part, next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.hot import AckedId
from geminga.wire.pulsar.pieces import SINGLE_FIELDS_BYTES_MAX, Pieces, cut
from geminga.wire.pulsar.varint import signed64

M = TypeVar("M", bound=Message)
#: Answers the ACK of (consumer id, request id).
Respond = Callable[[int, int, GemingaError | None], None]

#: Bytes of message ids handled in one turn: at most some 1,400 ids.
PIECE_BYTES: Final = 8 * 1024
#: What is parsed at once: a message id with the longest ack set, in the longest varints, and what is there once.
PIECE_PARSED_BYTES_MAX: Final = WORDS_MAX * 11 + SINGLE_FIELDS_BYTES_MAX + PIECE_BYTES
_MESSAGE_IDS_OF_ACK: Final = 0x1A
_MESSAGE_IDS_OF_REDELIVER: Final = 0x12


class SubscribedTopic(Protocol):
    """A topic that consumers can be attached to."""

    async def subscribe(self, connection: ConsumerConnection, request: pb.CommandSubscribe) -> Consumer:
        """Attach a consumer, creating its subscription if need be; raises GemingaError."""
        ...


class Topics(Protocol):
    """Where topics are got."""

    def get(self, name: TopicName, *, create: bool) -> Awaitable[SubscribedTopic]:
        """The topic, loaded; raises GemingaError."""
        ...


class CommandMembers(ConsumerMembers, Protocol):
    """What a client has on a connection, as its commands see it."""

    @property
    def requests(self) -> MutableMapping[tuple[int, int], int]:
        """Ids under creation: (command type, id) -> request id."""
        ...

    def request_ended(self, key: tuple[int, int], request_id: int) -> bool:
        """Take a creation out of :attr:`requests`; whether the client still waits for it."""
        ...

    def answer_gone(self, consumer_id: int, answer: Callable[[], None]) -> None:
        """Give the answer to a command for a consumer that is gone, not before its client is told that it is."""
        ...


class CommandConnection(ConsumerConnection, Part, Protocol):
    """A connection, as its commands see it."""

    @property
    def members(self) -> CommandMembers:
        """What its client has here."""
        ...

    @property
    def is_closed(self) -> bool:
        """Nothing is written to it any more."""
        ...

    def send_success(self, request_id: int) -> None:
        """Send SUCCESS for a request."""
        ...

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Send ERROR for a request."""
        ...

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error."""
        ...

    def run(self, work: Coroutine[None, None, None], name: str) -> None:
        """Work on a request in a task of its own."""
        ...

    def run_in_turns(self, work: Coroutine[None, None, None]) -> None:
        """Carry out the command at hand in several turns; those behind it wait."""
        ...

    def close(self, reason: str = "") -> None:
        """Close the connection; a reason is logged."""
        ...


class AckAnswers:
    """Collects what becomes of the pieces of an ACK; the last one answers, with the first error."""

    __slots__ = ("_answer", "_error", "_is_sealed", "_open")

    def __init__(self, answer: acknowledgment.AckDone | None) -> None:
        self._answer = answer
        self._error: GemingaError | None = None
        self._open = 0
        self._is_sealed = False

    def piece(self) -> acknowledgment.AckDone | None:
        """Who is to be told of one more piece; None: nobody asked."""
        if self._answer is None:
            return None
        self._open += 1
        return self._done

    @property
    def is_wanted(self) -> bool:
        """Whether anybody asked."""
        return self._answer is not None

    def failed(self, error: GemingaError) -> None:
        """A piece was not carried out."""
        self._error = self._error or error

    def seal(self, error: GemingaError | None = None) -> None:
        """There are no more pieces; with an error, those that follow were not carried out."""
        self._error = self._error or error
        self._is_sealed = True
        self._settle()

    def _done(self, error: GemingaError | None) -> None:
        self._error = self._error or error
        self._open -= 1
        self._settle()

    def _settle(self) -> None:
        if self._is_sealed and not self._open and self._answer is not None:
            answer, self._answer = self._answer, None
            answer(self._error)


async def acknowledge(
    consumer: Consumer,
    ids: Sequence[AckedId],
    *,
    is_cumulative: bool,
    done: acknowledgment.AckDone | None,
    properties: Mapping[str, int],
) -> None:
    """Apply an ACK with ack sets that must be checked first."""
    answers = AckAnswers(done)
    await _acknowledge(consumer, ids, is_cumulative, answers, properties)
    await _answer(consumer, answers)


async def acknowledge_long(connection: CommandConnection, raw: bytes, respond: Respond) -> None:
    """Apply an ACK of any length; a connection that sent none is closed."""
    try:
        await _acknowledge_pieces(connection, raw, respond)
    except ProtocolError as error:
        connection.close(str(error))


async def _acknowledge_pieces(connection: CommandConnection, raw: bytes, respond: Respond) -> None:
    pieces = await _cut(raw, _MESSAGE_IDS_OF_ACK)
    head = _parsed(pb.CommandAck(), pieces.single)
    done: acknowledgment.AckDone | None = None
    if head.HasField("request_id"):

        def done(error: GemingaError | None) -> None:
            respond(head.consumer_id, head.request_id, error)

    answers = AckAnswers(done)
    consumer = connection.members.consumers.get(head.consumer_id)
    is_cumulative = head.ack_type == pb.CommandAck.Cumulative
    if consumer is None:
        answers.seal(ConsumerNotFoundError(f"no consumer {head.consumer_id}"))
        return
    if is_cumulative and len(pieces.stretches) != 1:
        answers.seal(NotAllowedError("Cumulative acknowledgment of many message ids instead of one"))
        return
    if head.HasField("txnid_most_bits") or head.HasField("txnid_least_bits"):
        answers.seal(await _acknowledge_pieces_in_transaction(connection, raw, pieces))
        return
    try:
        properties = ack_properties((pair.key, pair.value) for pair in head.properties)
    except NotAllowedError as error:
        answers.seal(error)
        return
    for start, end in pieces.stretches:
        ack = _parsed(pb.CommandAck(), pieces.single + raw[start:end])
        await _acknowledge(consumer, ids_of(ack), is_cumulative, answers, properties)
        await next_turn()
    await _answer(consumer, answers)


async def _acknowledge_pieces_in_transaction(
    connection: CommandConnection, raw: bytes, pieces: Pieces
) -> GemingaError | None:
    """What went wrong. The client aborts the transaction then, which frees what was held of the pieces before."""
    try:
        for start, end in pieces.stretches:
            await acknowledge_in_transaction(connection, _parsed(pb.CommandAck(), pieces.single + raw[start:end]))
            await next_turn()
    except ProtocolError:
        raise
    except GemingaError as error:
        return error
    return None


async def acknowledge_in_transaction(connection: CommandConnection, ack: pb.CommandAck) -> None:
    """Hold what an ACK of a transaction names; durable on return. Raises GemingaError."""
    consumer = connection.members.consumers.get(ack.consumer_id)
    if consumer is None:
        raise ConsumerNotFoundError(f"no consumer {ack.consumer_id}")
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription) or subscription.transactions.acks is None:
        raise NotAllowedError("transactions are not enabled on this broker, or not for this subscription")
    await subscription.transactions.acks.acknowledge(
        consumer,
        TxnId(ack.txnid_most_bits, ack.txnid_least_bits),
        ack.message_id,
        is_cumulative=ack.ack_type == pb.CommandAck.Cumulative,
    )


def ids_of(ack: pb.CommandAck) -> list[AckedId]:
    """The message ids of an ACK."""
    return [
        AckedId(signed64(m.ledgerId), signed64(m.entryId), tuple(m.ack_set) if m.ack_set else None)
        for m in ack.message_id
    ]


async def _acknowledge(
    consumer: Consumer,
    ids: Sequence[AckedId],
    is_cumulative: bool,
    answers: AckAnswers,
    properties: Mapping[str, int],
) -> None:
    subscription = consumer.subscription
    if not isinstance(subscription, Subscription):
        consumer.messages_acked += len(ids)
        return
    if acknowledgment.needs_turns(ids):
        checked: list[AckedId] = []
        try:
            for ledger_id, entry_id, ack_set in ids:
                is_there, words = await fitting(subscription, Position(ledger_id, entry_id), ack_set)
                if is_there:
                    checked.append(AckedId(ledger_id, entry_id, words))
        except GemingaError as error:
            answers.failed(error)
            return
        if not checked:
            return
        ids = checked
    # Within memory single ones are never refused: they are made durable together, at the end.
    is_sure = subscription.cursor.is_in_memory and not is_cumulative
    done = None if is_sure else answers.piece()
    acknowledgment.acknowledge(
        subscription, consumer, ids, is_cumulative=is_cumulative, done=done, properties=properties
    )


async def _answer(consumer: Consumer, answers: AckAnswers) -> None:
    """All pieces were applied: answer when they are durable."""
    subscription = consumer.subscription
    if answers.is_wanted and isinstance(subscription, Subscription):
        try:
            await subscription.cursor.flush()
        except GemingaError as error:
            answers.failed(error)
    answers.seal()


async def redeliver_long(connection: CommandConnection, raw: bytes) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES of any length; a connection that sent none is closed."""
    try:
        pieces = await _cut(raw, _MESSAGE_IDS_OF_REDELIVER)
        for start, end in pieces.stretches:
            request = _parsed(pb.CommandRedeliverUnacknowledgedMessages(), pieces.single + raw[start:end])
            if not redeliver(connection, request):
                return
            await next_turn()
    except ProtocolError as error:
        connection.close(str(error))


def redeliver(connection: CommandConnection, request: pb.CommandRedeliverUnacknowledgedMessages) -> bool:
    """Give back the entries named, or all; whether it makes a difference to name more of them."""
    consumer = connection.members.consumers.get(request.consumer_id)
    if consumer is None or not isinstance(consumer.subscription, Subscription):
        return False
    dispatch = consumer.subscription.dispatch
    if dispatch is None:
        return False
    epoch = request.consumer_epoch if request.HasField("consumer_epoch") else NO_EPOCH
    by_position = dispatch.redelivers_by_position
    positions = [position_from(m) for m in request.message_ids] if by_position else []
    dispatch.redeliver(consumer, positions or None, epoch)
    return by_position


async def _cut(raw: bytes, tag: int) -> Pieces:
    for pieces in cut(raw, tag, PIECE_BYTES):
        if pieces is not None:
            return pieces
        await next_turn()
    raise ProtocolError("a command without an end")


def _parsed(message: M, data: bytes) -> M:
    if len(data) > PIECE_PARSED_BYTES_MAX:
        raise ProtocolError(f"a message id of more than {PIECE_PARSED_BYTES_MAX} bytes")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ProtocolError(f"a command that can not be decoded: {error}") from None
    return message
