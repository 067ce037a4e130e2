"""What acknowledging has in common: which consumer of a topic a message or an id belongs to, and who hears of it.

Everything is looked at before anything is acknowledged: a list with one thing in it that can not be acknowledged leaves
the others as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from geminga.client._consuming.receiving import Receiving
from geminga.client._errors import InvalidMessage, OperationNotSupported, PulsarException
from geminga.client._message import Message
from geminga.client._message_id import MessageId
from geminga.runtime import get_logger, tell

if TYPE_CHECKING:
    from geminga.client._consuming.acks import AckSender, Receipt
    from geminga.client._consuming.consumer import Consumer
    from geminga.client._consuming.topic_consumer import TopicConsumer

_log = get_logger(__name__)

T = TypeVar("T")

#: The entry of a message; None for an id.
_ENTRY_OF: Final = attrgetter("_entry")
#: The index of a message in its entry.
_INDEX_OF: Final = attrgetter("_index")

#: Messages and ids that are acknowledged together.
Acknowledged = Sequence[Message[Any] | MessageId]
#: Who answers them: receipts, each with its sender, in order.
_Receipts = dict[asyncio.Future[None], "AckSender"]


class Acknowledging(Receiving[T]):
    """The acknowledging half of a :class:`Consumer`; not for use on its own."""

    def _checked(self, given: object) -> Acknowledged:
        """A message, an id, or several: as a list of what can be acknowledged. Raises InvalidMessage,
        OperationNotSupported."""
        if isinstance(given, Message | MessageId):
            messages: list[Message[Any] | MessageId] = [given]
        elif isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | Mapping):
            messages = list(given)
        else:
            raise InvalidMessage(f"{given!r:.100}: expected a message, a message id, or a list of them")
        kinds = set(map(type, messages))
        if not kinds <= {Message, MessageId}:
            for message in messages:
                if not isinstance(message, Message | MessageId):
                    raise InvalidMessage(f"{message!r:.100}: expected a message or a message id")
        if MessageId in kinds:
            for message in messages:
                if isinstance(message, MessageId):
                    self._source_of(message).acks.check_id(message)
        # Of a batch's messages one entry: a look at each message is a twentieth of what receiving one takes.
        if any(entry is not None and entry.source is None for entry in set(map(_ENTRY_OF, messages))):
            raise OperationNotSupported("the message does not come from a consumer")
        return messages

    async def _acknowledge_all(self, messages: Acknowledged) -> None:
        """What :meth:`_checked` gave; raises the first error of a receipt."""
        if self._interceptors:
            await self._acknowledge_intercepted(messages)
            return
        receipts: _Receipts = {}
        for entry, group in groupby(messages, _ENTRY_OF):
            if entry is None:
                for message_id in group:
                    self._acknowledge(message_id, receipts)
            elif entry.acker is None:
                self.counters.acks_sent += 1
                acks = entry.source.acks
                _remember(receipts, acks.acknowledge_entry(entry.key), acks.sender)
            else:
                indexes = list(map(_INDEX_OF, group))
                self.counters.acks_sent += len(indexes)
                acks = entry.source.acks
                _remember(receipts, acks.acknowledge_many(entry, indexes), acks.sender)
        for receipt, sender in receipts.items():
            await sender.heard(receipt)

    async def _acknowledge_intercepted(self, messages: Acknowledged) -> None:
        """The same, and interceptors hear of each message: they wait for one receipt together, not one by one."""
        first: PulsarException | None = None
        pending: list[tuple[Message[Any] | MessageId, _Receipts]] = []
        for message in messages:
            receipts: _Receipts = {}
            self._acknowledge(message, receipts)
            pending.append((message, receipts))
        for message, receipts in pending:
            error: PulsarException | None = None
            try:
                for receipt, sender in receipts.items():
                    await sender.heard(receipt)
            except PulsarException as failure:
                error = failure
            for interceptor in self._interceptors:
                tell(_log, "interceptor", interceptor.on_acknowledge, self._as_consumer(), id_of(message), error)
            first = first or error
        if first is not None:
            raise first

    def _acknowledge(self, message: Message[Any] | MessageId, receipts: _Receipts) -> None:
        self.counters.acks_sent += 1
        if isinstance(message, MessageId):
            acks = self._source_of(message).acks
            _remember(receipts, acks.acknowledge_id(message), acks.sender)
        else:
            entry = message._entry
            assert entry.source is not None
            acks = entry.source.acks
            _remember(receipts, acks.acknowledge(entry, message._index), acks.sender)

    async def _acknowledge_up_to(self, message: Message[Any] | MessageId) -> None:
        """Everything up to one that :meth:`_checked` took."""
        self.counters.acks_sent += 1
        error: PulsarException | None = None
        try:
            if isinstance(message, MessageId):
                acks = self._source_of(message).acks
                receipt = acks.acknowledge_cumulative_id(message)
            else:
                entry = message._entry
                assert entry.source is not None
                acks = entry.source.acks
                receipt = acks.acknowledge_cumulative(entry, message._index)
            if receipt is not None:
                await acks.sender.heard(receipt)
        except PulsarException as failure:
            error = failure
        for interceptor in self._interceptors:
            tell(_log, "interceptor", interceptor.on_acknowledge_cumulative, self._as_consumer(), id_of(message), error)
        if error is not None:
            raise error

    def _source_of(self, message_id: MessageId) -> TopicConsumer:
        if not message_id.is_possible:
            raise InvalidMessage(f"{message_id!r:.100}: expected a message, or a message id that can be")
        topics = self._topics
        if len(topics) == 1:
            return next(iter(topics.values()))
        found = topics.get(message_id.topic_name())
        if found is None:
            same = [t for t in topics.values() if t.topic.partition == message_id.partition() >= 0]
            if len(same) != 1:
                raise OperationNotSupported(
                    f"{message_id!r} names no topic of this consumer: deserialize it with its topic, or use the message"
                )
            found = same[0]
        return found

    def _as_consumer(self) -> Consumer[Any]:
        return cast("Consumer[Any]", self)


def one_of(given: object) -> Message[Any] | MessageId:
    """A single message or id; raises InvalidMessage for anything else."""
    if not isinstance(given, Message | MessageId):
        raise InvalidMessage(f"{given!r:.100}: expected a message or a message id")
    return given


def id_of(message: Message[Any] | MessageId) -> MessageId:
    """Of a message, its id."""
    return message if isinstance(message, MessageId) else message.message_id()


def _remember(receipts: _Receipts, receipt: Receipt, sender: AckSender) -> None:
    if receipt is not None:
        receipts[receipt] = sender
