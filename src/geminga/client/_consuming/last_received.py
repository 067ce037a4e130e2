"""``LastReceived``: where the consumer of one topic is, for subscriptions that live no longer than their connection."""

from __future__ import annotations

from collections.abc import Sequence

from geminga.client._api.message_id import MessageId
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.ports import Delivery
from geminga.client.consumer_rules.start_position import StartPosition
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.varint import signed64

_ENDS = (MessageId.earliest, MessageId.latest)


class LastReceived:
    """What was received last, and where a fresh subscription begins."""

    __slots__ = ("_delivery", "_found", "_is_durable", "_options", "cut_off", "last_entry", "start_message_id")

    def __init__(self, options: ConsumerOptions, delivery: Delivery, start_message_id: MessageId | None) -> None:
        self._options = options
        self._is_durable = options.is_durable
        self._delivery = delivery
        #: The place of one that lacked it, and what it began at; None: none was found.
        self._found: tuple[MessageId, MessageId | None] | None = None
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
    def lacks_place(self) -> bool:
        """Whether it would begin elsewhere if it were subscribed again: it is at a time, or at what was the end when it
        came, and nothing was received since."""
        if self._is_durable or self.last_entry is not None:
            return False
        start = self.start_message_id
        return start is None or start == MessageId.latest

    def stands_at(self, marked: pb.MessageIdData) -> None:
        """Where :attr:`lacks_place`: the last one that does not come, as the broker says."""
        ledger_id = signed64(marked.ledgerId)
        if ledger_id >= 0:
            self._place_behind(ledger_id, signed64(marked.entryId))

    def came(self, frames: Sequence[Frame], epoch: int) -> None:
        """The first frames since :attr:`lacks_place`: it begins where their entries are."""
        for command, _ in frames:
            message = decode_command(command).message
            if not message.HasField("consumer_epoch") or message.consumer_epoch >= epoch:
                self._place_behind(message.message_id.ledgerId, message.message_id.entryId - 1)
                return

    def _place_behind(self, ledger_id: int, entry_id: int) -> None:
        # The first message behind it: an entry as a whole is the last of its messages.
        place = (
            MessageId(-1, ledger_id, entry_id + 1, 0) if self.is_start_inclusive else MessageId(-1, ledger_id, entry_id)
        )
        self._found = (place, self.start_message_id)
        self.start_message_id = place

    def left_cluster(self) -> None:
        """In another cluster the place that was found is any other one: it begins as it did here."""
        if self._found is not None and self.start_message_id is self._found[0]:
            self.start_message_id = self._found[1]

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
