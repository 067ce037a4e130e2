"""``LastReceived``: where the consumer of one topic is, for subscriptions that live no longer than their connection."""

from __future__ import annotations

from geminga.client._api.message_id import MessageId
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.ports import Delivery
from geminga.client.consumer_rules.start_position import StartPosition

_ENDS = (MessageId.earliest, MessageId.latest)


class LastReceived:
    """What was received last, and where a fresh subscription begins."""

    __slots__ = ("_delivery", "_options", "cut_off", "last_entry", "start_message_id")

    def __init__(self, options: ConsumerOptions, delivery: Delivery, start_message_id: MessageId | None) -> None:
        self._options = options
        self._delivery = delivery
        #: Where it began, or was moved to; None: at the subscription's place, or at a time.
        self.start_message_id = start_message_id
        #: The entry the application received a message of last.
        self.last_entry: EntryBatch | None = None
        #: The entry whose rest was dropped last, and the index of the last message received of it.
        self.cut_off: tuple[EntryBatch, int] | None = None

    @property
    def is_start_inclusive(self) -> bool:
        """Whether the message it began at comes, too."""
        return self._options.start_message_id_inclusive

    def last_index(self) -> int:
        """The index of the message received last in its entry, of which one was received."""
        entry, cut_off = self.last_entry, self.cut_off
        assert entry is not None
        return cut_off[1] if cut_off is not None and cut_off[0] is entry else self._delivery.last_index(entry)

    def position(self) -> MessageId | None:
        """The last message the application received; None: none since the subscription or the last seek."""
        return None if self.last_entry is None else self.last_entry.message_id(self.last_index())

    def restart_message_id(self) -> MessageId | None:
        """Where a subscription that is not durable goes on: behind the last message that was received."""
        if self._options.is_durable:
            return None
        last = self.position()
        return last if last is not None else self.start_message_id

    @property
    def wants_newest(self) -> bool:
        """Whether it begins at the topic's newest message, which has to be found first.

        ``latest`` names no message: with ``start_message_id_inclusive`` it means the one that is the last when the
        consumer comes. With a duration to go back by, the broker finds the place.
        """
        options = self._options
        return (
            options.start_message_id_inclusive
            and not options.is_durable
            and not options.start_message_rollback_duration_s
            and self.restart_message_id() == MessageId.latest
        )

    def start_at(self, message_id: MessageId | None) -> StartPosition | None:
        """What lies before it is not handed out, if it is subscribed from ``message_id`` on; None: all is."""
        is_inclusive = self._options.start_message_id_inclusive and self.last_entry is None
        return _position(message_id, is_inclusive=is_inclusive)

    def close(self) -> None:
        """Nothing is received any more."""
        self.last_entry = self.cut_off = None

    def move(self, message_id: MessageId | None) -> StartPosition | None:
        """The subscription is moved there; None: to a time. As :meth:`start_at`."""
        self.last_entry = None
        self.start_message_id = message_id
        return _position(message_id, is_inclusive=self._options.start_message_id_inclusive)


def _position(message_id: MessageId | None, *, is_inclusive: bool) -> StartPosition | None:
    if message_id is None or message_id in _ENDS:
        return None
    # A chunked message begins with its first chunk.
    at = (message_id.first_chunk_message_id() if is_inclusive else None) or message_id
    return StartPosition(at.ledger_id(), at.entry_id(), at.batch_index(), is_inclusive)
