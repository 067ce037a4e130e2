"""``Acknowledging``: whose message or id it is that a consumer acknowledges, and who hears of it.

Everything is looked at before anything is acknowledged: a list with one thing in it that can not be acknowledged leaves
the others as they were.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from geminga.client._api.errors import (
    InvalidMessage,
    OperationNotSupported,
    PulsarException,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.place import Place
from geminga.client._api.transaction import Transaction, begin_in
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer_interceptors import Interceptors
from geminga.client._messages.message import Message
from geminga.client.consumer_rules.ack_properties import NONE, Properties
from geminga.client.rules.option_kinds import INT64_MAX, NOTHING, TEXT, TEXTS, Either
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import spawn

if TYPE_CHECKING:
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
#: Messages and ids that are not answered, in order, each with what waits for its answers.
_Unanswered = deque[tuple[Message[Any] | MessageId, list[Callable[[], Awaitable[None]]]]]


class Acknowledging:
    """See the module. Who calls has seen that the consumer is open, and looks at what it was given first."""

    __slots__ = ("_counters", "_interceptors", "_place", "_topics")

    def __init__(self, subscription: Subscription, place: Place, topics: HeldTopics) -> None:
        self._counters = subscription.counters
        self._interceptors = subscription.interceptors
        self._place = place
        self._topics = topics

    def checked(self, given: object) -> Acknowledged:
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
                    self._topics.source_of(message).acks.check_id(message)
        # Of a batch's messages one entry: a look at each message is a twentieth of what receiving one takes.
        if any(entry is not None and entry.source is None for entry in set(map(_ENTRY_OF, messages))):
            raise OperationNotSupported("the message does not come from a consumer")
        return messages

    async def all(self, messages: Acknowledged, properties: Properties) -> None:
        """What :meth:`checked` gave; raises the first error of a receipt."""
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
                self._counters.acks_sent += 1
                acks = entry.source.acks
                _remember(receipts, acks.acknowledge_entry(entry.key), acks.sender)
            else:
                indexes = list(map(_INDEX_OF, group))
                self._counters.acks_sent += len(indexes)
                acks = entry.source.acks
                _remember(receipts, acks.acknowledge_many(entry, indexes), acks.sender)
        for each in senders:
            each.end_properties()
        await _heard(receipts)

    def _sender_of(self, message: Message[Any] | MessageId) -> AckSender:
        if isinstance(message, MessageId):
            return self._topics.source_of(message).acks.sender
        source = message._entry.source
        assert source is not None
        return source.acks.sender

    async def _acknowledge_intercepted(
        self, messages: Acknowledged, interceptors: Interceptors, senders: Iterable[AckSender]
    ) -> None:
        """The same, and interceptors hear of each message: they wait for one receipt together, not one by one."""
        pending: _Unanswered = deque()
        for message in messages:
            receipts: _Receipts = {}
            self._acknowledge(message, receipts)
            pending.append((message, _waits(receipts)))
        for each in senders:
            each.end_properties()
        await _heard_each(pending, interceptors.acknowledged)

    def _acknowledge(self, message: Message[Any] | MessageId, receipts: _Receipts) -> None:
        self._counters.acks_sent += 1
        if isinstance(message, MessageId):
            by_id = self._topics.source_of(message).acks
            _remember(receipts, by_id.acknowledge_id(message), by_id.sender)
        else:
            entry = message._entry
            assert entry.source is not None
            acks = entry.source.acks
            _remember(receipts, acks.acknowledge(entry, message._index), acks.sender)

    async def up_to(self, message: Message[Any] | MessageId, properties: Properties) -> None:
        """Everything up to one that :meth:`checked` took."""
        self._counters.acks_sent += 1
        receipts: _Receipts = {}
        try:
            if isinstance(message, MessageId):
                by_id = self._topics.source_of(message).acks
                _remember(receipts, by_id.acknowledge_cumulative_id(message, properties), by_id.sender)
            else:
                entry = message._entry
                assert entry.source is not None
                acks = entry.source.acks
                _remember(receipts, acks.acknowledge_cumulative(entry, message._index, properties), acks.sender)
        except PulsarException as error:
            if self._interceptors is not None:
                self._interceptors.acknowledged_up_to(id_of(message), error)
            raise
        if self._interceptors is None:
            await _heard(receipts)
        else:
            await _heard_each(deque([(message, _waits(receipts))]), self._interceptors.acknowledged_up_to)

    async def all_in(self, txn: Transaction, messages: Acknowledged, *, is_cumulative: bool = False) -> None:
        """What :meth:`checked` gave, in a transaction; raises the first error."""
        core = begin_in(txn, self._place)
        tell: Callable[[MessageId, Exception | None], None] | None = None
        if self._interceptors is not None:
            tell = self._interceptors.acknowledged_up_to if is_cumulative else self._interceptors.acknowledged
        try:
            self._counters.acks_sent += len(messages)
            pending: _Unanswered = deque()
            for one in messages:
                # Shared by all that goes in one command: one that gives up does not end it.
                answer = self._add_in(core, one, is_cumulative=is_cumulative)
                pending.append((one, [partial(asyncio.shield, answer)]))
                del answer  # see runtime's value_of
            await _heard_each(pending, tell)
        finally:
            core.settle(None)

    def refuse(self, message: Message[Any] | MessageId) -> None:
        """One could not be processed; raises OperationNotSupported, InvalidMessage."""
        if isinstance(message, Message):
            entry = message._entry
            if entry.source is None:
                raise OperationNotSupported("the message does not come from a consumer")
            self._counters.negative_acks += 1
            entry.source.negative_acknowledge(entry.key, entry.redelivery_count)
        else:
            source = self._topics.source_of(message)
            self._counters.negative_acks += 1
            source.negative_acknowledge((message.ledger_id(), message.entry_id()), 0)

    def _add_in(
        self, core: TransactionCore, message: Message[Any] | MessageId, *, is_cumulative: bool
    ) -> asyncio.Future[None]:
        if isinstance(message, MessageId):
            key = (message.ledger_id(), message.entry_id())
            acks: EntryAcks = self._topics.source_of(message).acks
            index, size = message.batch_index(), acks.batch_size_of(message)
            return acks.in_transactions.add(core, key, index, size, is_cumulative=is_cumulative)
        entry = message._entry
        assert entry.source is not None
        index, size = (message._index, entry.batch_size) if entry.is_batch else (-1, 0)
        return entry.source.acks.in_transactions.add(
            core, entry.key, index, size, is_cumulative=is_cumulative, batch=entry if entry.is_batch else None
        )


def one_of(given: object) -> Message[Any] | MessageId:
    """A single message or id; raises InvalidMessage for anything else."""
    if not isinstance(given, Message | MessageId):
        raise InvalidMessage(f"{given!r:.100}: expected a message or a message id")
    return given


def id_of(message: Message[Any] | MessageId) -> MessageId:
    """Of a message, its id."""
    return message if isinstance(message, MessageId) else message.message_id()


def along(properties: object, txn: Transaction | None) -> Properties:
    """What goes along with an acknowledgment; raises InvalidMessage."""
    if properties is None:
        return NONE
    if not isinstance(properties, Mapping) or not all(
        TEXT.takes(name) and name and type(number) is int and -INT64_MAX - 1 <= number <= INT64_MAX
        for name, number in properties.items()
    ):
        raise InvalidMessage(f"properties={properties!r:.100}: expected a mapping of names to 64-bit integers")
    if properties and txn is not None:
        raise InvalidMessage("properties: an acknowledgment in a transaction takes none along")
    return dict(properties)


async def _heard(receipts: _Receipts) -> None:
    """Until all were answered; raises the first error."""
    receipt: asyncio.Future[None] | None = None
    try:
        for receipt, sender in receipts.items():
            await sender.heard(receipt)
    finally:
        receipts.clear()
        del receipt  # see runtime's value_of


def _waits(receipts: _Receipts) -> list[Callable[[], Awaitable[None]]]:
    return [partial(sender.heard, receipt) for receipt, sender in receipts.items()]


async def _heard_each(pending: _Unanswered, tell: Callable[[MessageId, Exception | None], None] | None) -> None:
    """Until each was answered, of which ``tell`` hears, also when who waits gives up; raises the first error."""
    try:
        first = await _first_error(pending, tell)
    except asyncio.CancelledError:
        if pending and tell is not None:
            spawn(_first_error(pending, tell), name="acknowledgments that nobody waits for")
        raise
    if first is not None:
        try:
            raise first
        finally:
            del first  # see runtime's value_of


async def _first_error(
    pending: _Unanswered, tell: Callable[[MessageId, Exception | None], None] | None
) -> PulsarException | None:
    """What is answered is taken from ``pending``."""
    first: PulsarException | None = None
    while pending:
        one, waits = pending[0]
        error: PulsarException | None = None
        try:
            for wait in waits:
                await wait()
        except PulsarException as failure:
            error = failure
        pending.popleft()
        if tell is not None:
            tell(id_of(one), error)
        first = first or error
    return first


def _remember(receipts: _Receipts, receipt: Receipt, sender: AckSender) -> None:
    if receipt is not None:
        receipts[receipt] = sender
