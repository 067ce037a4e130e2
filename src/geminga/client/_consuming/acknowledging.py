"""The acknowledging half of a consumer: which consumer of a topic a message or an id belongs to, and who hears of it.

Everything is looked at before anything is acknowledged: a list with one thing in it that can not be acknowledged leaves
the others as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from geminga.client._api.errors import (
    CumulativeAcknowledgementNotAllowedError,
    InvalidMessage,
    NotAllowedError,
    OperationNotSupported,
    PulsarException,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.place import Place, running_loop
from geminga.client._api.transaction import Transaction, begin_in
from geminga.client._consuming.receiving import Receiving
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer_interceptors import Interceptors
from geminga.client._messages.message import Message
from geminga.client.consumer_rules.ack_properties import NONE, Properties
from geminga.client.rules.option_kinds import INT64_MAX, NOTHING, TEXT, TEXTS, TIME_MS_MAX, Either
from geminga.client.rules.transaction import TransactionCore

if TYPE_CHECKING:
    from geminga.client._consuming.topic_consumer import TopicConsumer
    from geminga.client._messages.acks import AckSender, Receipt
    from geminga.client._messages.ports import EntryAcks

T = TypeVar("T")

#: The entry of a message; None for an id.
_ENTRY_OF: Final = attrgetter("_entry")
#: The index of a message in its entry.
_INDEX_OF: Final = attrgetter("_index")

_PROPERTIES: Final = Either(NOTHING, TEXTS)
_MS: Final = 1000

#: Messages and ids that are acknowledged together.
Acknowledged = Sequence[Message[Any] | MessageId]
#: Who answers them: receipts, each with its sender, in order.
_Receipts = dict[asyncio.Future[None], "AckSender"]


class Acknowledging(Receiving[T]):
    """The acknowledging half of a :class:`Consumer`; not for use on its own."""

    def __init__(self, topic: str, subscription: Subscription, place: Place) -> None:
        super().__init__(topic, subscription, place)
        self._by_index = subscription.options.batch_index_ack_enabled

    # ---- what users call

    async def acknowledge(
        self,
        message: Message[Any] | MessageId | Iterable[Message[Any] | MessageId],
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See :meth:`Consumer.acknowledge`."""
        if self._is_closed:
            self._check_alive()
        # One comparison for all: that there are no interceptors, no transaction and no properties.
        if type(message) is Message and self._interceptors is txn is properties:  # type: ignore[comparison-overlap]
            entry = message._entry
            source = entry.source
            if source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            acker = entry.acker
            self.counters.acks_sent += 1
            # As Acknowledgement.acknowledge, one call shorter: most messages are in batches, and not the last of them.
            if acker is not None and not acker.acknowledge(message._index):
                if not self._by_index or acker.is_waiting:
                    return
                if running_loop() is not self._loop:
                    self._place.check()
                receipt = source.acks.sender.add_partial(entry.key, acker)
            else:
                if running_loop() is not self._loop:
                    self._place.check()
                receipt = source.acks.acknowledge_entry(entry.key)
            if receipt is not None:
                await source.acks.sender.heard(receipt)
            return
        self._check_alive()
        along = _along(properties, txn)
        if txn is None:
            await self._acknowledge_all(self._checked(message), along)
        else:
            await self._acknowledge_in(txn, self._checked(message))

    async def acknowledge_cumulative(
        self,
        message: Message[Any] | MessageId,
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """See :meth:`Consumer.acknowledge_cumulative`."""
        if self._is_closed or running_loop() is not self._loop:
            self._check_alive()
        if self.options.shares_messages:
            raise CumulativeAcknowledgementNotAllowedError(
                f"{self.options.consumer_type.name} subscriptions can not be acknowledged cumulatively: messages "
                "before this one may be with other consumers; acknowledge each message"
            )
        checked = self._checked(one_of(message))
        along = _along(properties, txn)
        if txn is None:
            await self._acknowledge_up_to(checked[0], along)
        else:
            await self._acknowledge_in(txn, checked, is_cumulative=True)

    async def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """See :meth:`Consumer.negative_acknowledge`."""
        self._check_open()
        one = one_of(message)
        if isinstance(one, Message):
            entry = one._entry
            if entry.source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            self.counters.negative_acks += 1
            entry.source.negative_acknowledge(entry.key, entry.redelivery_count)
        else:
            source = self._source_of(one)
            self.counters.negative_acks += 1
            source.negative_acknowledge((one.ledger_id(), one.entry_id()), 0)

    async def reconsume_later(
        self,
        message: Message[Any],
        delay: timedelta | float = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """See :meth:`Consumer.reconsume_later`."""
        self._check_open()
        dead_letters = self._subscription.dead_letters
        if not self.options.retry_enabled or dead_letters is None:
            raise NotAllowedError("reconsume_later: the consumer was not made with retry_enabled=True")
        if not isinstance(message, Message):
            raise InvalidMessage(f"{message!r:.100}: expected a message")
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not abs(seconds) < TIME_MS_MAX / _MS:
            raise InvalidMessage(f"delay={delay!r:.100}: expected seconds or a timedelta")
        if not _PROPERTIES.takes(properties):
            raise InvalidMessage(f"properties={properties!r:.100}: expected {_PROPERTIES.expected}")
        await dead_letters.reconsume_later(message, int(seconds * _MS), properties)
        await self.acknowledge(message)

    async def redeliver_unacknowledged_messages(self) -> None:
        """See :meth:`Consumer.redeliver_unacknowledged_messages`."""
        self._check_open()
        for topic in self._topics.values():
            topic.redeliver_all()

    async def flush_acknowledgements(self) -> None:
        """See :meth:`Consumer.flush_acknowledgements`."""
        self._check_open()
        for topic in list(self._topics.values()):
            topic.acks.sender.flush()
        for topic in list(self._topics.values()):
            await topic.acks.sender.flushed()

    # ---- how it is done

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

    async def _acknowledge_all(self, messages: Acknowledged, properties: Properties) -> None:
        """What :meth:`_checked` gave; raises the first error of a receipt."""
        senders = dict.fromkeys(map(self._sender_of, messages)) if properties else ()
        for each in senders:
            each.begin_properties(properties)
        if self._interceptors is not None:
            await self._acknowledge_intercepted(messages, self._interceptors, senders)
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
        for each in senders:
            each.end_properties()
        for receipt, sender in receipts.items():
            await sender.heard(receipt)

    def _sender_of(self, message: Message[Any] | MessageId) -> AckSender:
        if isinstance(message, MessageId):
            return self._source_of(message).acks.sender
        source = message._entry.source
        assert source is not None
        return source.acks.sender

    async def _acknowledge_intercepted(
        self, messages: Acknowledged, interceptors: Interceptors, senders: Iterable[AckSender]
    ) -> None:
        """The same, and interceptors hear of each message: they wait for one receipt together, not one by one."""
        first: PulsarException | None = None
        pending: list[tuple[Message[Any] | MessageId, _Receipts]] = []
        for message in messages:
            receipts: _Receipts = {}
            self._acknowledge(message, receipts)
            pending.append((message, receipts))
        for each in senders:
            each.end_properties()
        for message, receipts in pending:
            error: PulsarException | None = None
            try:
                for receipt, sender in receipts.items():
                    await sender.heard(receipt)
            except PulsarException as failure:
                error = failure
            interceptors.acknowledged(id_of(message), error)
            first = first or error
        if first is not None:
            raise first

    def _acknowledge(self, message: Message[Any] | MessageId, receipts: _Receipts) -> None:
        self.counters.acks_sent += 1
        if isinstance(message, MessageId):
            by_id = self._source_of(message).acks
            _remember(receipts, by_id.acknowledge_id(message), by_id.sender)
        else:
            entry = message._entry
            assert entry.source is not None
            acks = entry.source.acks
            _remember(receipts, acks.acknowledge(entry, message._index), acks.sender)

    async def _acknowledge_up_to(self, message: Message[Any] | MessageId, properties: Properties) -> None:
        """Everything up to one that :meth:`_checked` took."""
        self.counters.acks_sent += 1
        error: PulsarException | None = None
        try:
            if isinstance(message, MessageId):
                by_id = self._source_of(message).acks
                sender, receipt = by_id.sender, by_id.acknowledge_cumulative_id(message, properties)
            else:
                entry = message._entry
                assert entry.source is not None
                acks = entry.source.acks
                sender, receipt = acks.sender, acks.acknowledge_cumulative(entry, message._index, properties)
            if receipt is not None:
                await sender.heard(receipt)
        except PulsarException as failure:
            error = failure
        if self._interceptors is not None:
            self._interceptors.acknowledged_up_to(id_of(message), error)
        if error is not None:
            raise error

    async def _acknowledge_in(self, txn: Transaction, messages: Acknowledged, *, is_cumulative: bool = False) -> None:
        """What :meth:`_checked` gave, in a transaction; raises the first error."""
        core = begin_in(txn, self._place)
        first: PulsarException | None = None
        try:
            self.counters.acks_sent += len(messages)
            answers = [(self._add_in(core, one, is_cumulative=is_cumulative), one) for one in messages]
            for answer, one in answers:
                error: PulsarException | None = None
                try:
                    # Shared by all that goes in one command: one that gives up does not end it.
                    await asyncio.shield(answer)
                except PulsarException as failure:
                    error = failure
                if self._interceptors is not None:
                    tell = self._interceptors.acknowledged_up_to if is_cumulative else self._interceptors.acknowledged
                    tell(id_of(one), error)
                first = first or error
        finally:
            core.settle(None)
        if first is not None:
            raise first

    def _add_in(
        self, core: TransactionCore, message: Message[Any] | MessageId, *, is_cumulative: bool
    ) -> asyncio.Future[None]:
        if isinstance(message, MessageId):
            key = (message.ledger_id(), message.entry_id())
            acks: EntryAcks = self._source_of(message).acks
            index, size = message.batch_index(), acks.batch_size_of(message)
            return acks.in_transactions.add(core, key, index, size, is_cumulative=is_cumulative)
        entry = message._entry
        assert entry.source is not None
        index, size = (message._index, entry.batch_size) if entry.is_batch else (-1, 0)
        return entry.source.acks.in_transactions.add(
            core, entry.key, index, size, is_cumulative=is_cumulative, batch=entry if entry.is_batch else None
        )

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


def one_of(given: object) -> Message[Any] | MessageId:
    """A single message or id; raises InvalidMessage for anything else."""
    if not isinstance(given, Message | MessageId):
        raise InvalidMessage(f"{given!r:.100}: expected a message or a message id")
    return given


def id_of(message: Message[Any] | MessageId) -> MessageId:
    """Of a message, its id."""
    return message if isinstance(message, MessageId) else message.message_id()


def _along(properties: object, txn: Transaction | None) -> Properties:
    """What goes along with an acknowledgement; raises InvalidMessage."""
    if properties is None:
        return NONE
    if not isinstance(properties, Mapping) or not all(
        TEXT.takes(name) and name and type(number) is int and -INT64_MAX - 1 <= number <= INT64_MAX
        for name, number in properties.items()
    ):
        raise InvalidMessage(f"properties={properties!r:.100}: expected a mapping of names to 64-bit integers")
    if properties and txn is not None:
        raise InvalidMessage("properties: an acknowledgement in a transaction takes none along")
    return dict(properties)


def _remember(receipts: _Receipts, receipt: Receipt, sender: AckSender) -> None:
    if receipt is not None:
        receipts[receipt] = sender
