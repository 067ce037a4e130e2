"""What the parts of a consumer need of each other: protocols, so that none knows the consumer as a whole.

An entry knows the consumer of the topic that it came from as an :class:`EntrySource`; that one knows the place where
the messages of all topics meet as a :class:`Delivery`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.client._api.errors import PulsarException
from geminga.client._messages.acks import AckSender, Receipt
from geminga.client._messages.acks_in_transactions import AcksInTransactions
from geminga.client.consumer_rules.ack_properties import NONE, Properties
from geminga.client.consumer_rules.prefetch import FlowControl
from geminga.client.schema._protocol import MessageDecoder
from geminga.model import TopicName

if TYPE_CHECKING:
    from geminga.client._api.message_id import MessageId
    from geminga.client._messages.entry_batch import EntryBatch

EntryKey = tuple[int, int]


class EntryAcks(Protocol):
    """Takes the acknowledgments of a topic's entries."""

    @property
    def sender(self) -> AckSender:
        """Groups and sends them."""
        ...

    @property
    def in_transactions(self) -> AcksInTransactions:
        """Sends those of transactions."""
        ...

    def batch_size_of(self, message_id: MessageId) -> int:
        """Messages of the batch that an id is of; 0: of none."""
        ...

    def acknowledge(self, entry: EntryBatch, index: int) -> Receipt:
        """One message."""
        ...

    def acknowledge_many(self, entry: EntryBatch, indexes: Sequence[int]) -> Receipt:
        """Several messages of one entry."""
        ...

    def acknowledge_entry(self, key: EntryKey) -> Receipt:
        """A whole entry, with the chunks before it."""
        ...

    def acknowledge_cumulative(self, entry: EntryBatch, index: int, properties: Properties = NONE) -> Receipt:
        """Everything up to and with a message."""
        ...


class PermitsBack(Protocol):
    """Gives the permits of a topic's entries back."""

    def send(self, permits: int) -> None:
        """Tell the broker that so many more messages are wanted."""
        ...

    def give_back(self, count: int) -> None:
        """So many messages were received or dropped."""
        ...


class EntrySource(Protocol):
    """The consumer of one topic, as its entries and whoever receives them know it."""

    @property
    def topic(self) -> TopicName:
        """The topic, or the partition."""
        ...

    @property
    def decoder(self) -> MessageDecoder[object] | None:
        """Makes values of payloads; None: a value is the payload."""
        ...

    @property
    def flow(self) -> FlowControl:
        """Its permits; the hot path counts them itself."""
        ...

    @property
    def permits(self) -> PermitsBack:
        """Takes what ``flow`` gives."""
        ...

    @property
    def acks(self) -> EntryAcks:
        """Takes acknowledgments."""
        ...

    def first_received(self, entry: EntryBatch) -> None:
        """The application received the first message of an entry."""
        ...

    def cut_off(self, entry: EntryBatch, index: int) -> None:
        """The rest of an entry was dropped; ``index`` is of the last message that the application received of it."""
        ...

    def negative_acknowledge(self, key: EntryKey, redelivery_count: int) -> None:
        """A message of an entry could not be processed."""
        ...


class Delivery(Protocol):
    """Where the consumers of single topics hand over their entries, and tell what becomes of them."""

    @property
    def count(self) -> int:
        """Messages that wait to be received."""
        ...

    def on_entries(self, entries: Sequence[EntryBatch]) -> None:
        """Entries arrived."""
        ...

    def on_passed_over(self) -> None:
        """Entries came that gave no message."""
        ...

    def on_kept(self, more_bytes: int) -> None:
        """So many bytes more, or fewer, are kept: of pieces of messages, and of ids to ask for again."""
        ...

    def drop_prefetched(self, is_dropped: Callable[[EntryBatch], bool]) -> None:
        """Forget what was prefetched and not received."""
        ...

    def last_index(self, entry: EntryBatch) -> int:
        """Index of the last message of an entry that was received."""
        ...

    def on_subscribed(self, topic: TopicName) -> None:
        """One is subscribed to its topic, again perhaps."""
        ...

    def on_topic_failed(self, topic: TopicName, error: PulsarException, *, is_found: bool) -> None:
        """One can not go on; ``is_found``: a pattern found its topic."""
        ...
