"""What transactions use of the world above them; the broker implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from geminga.model.errors import GemingaError
from geminga.model.position import Position
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.transaction.core.held_back import Hold


class Participants(Protocol):
    """Topics and subscriptions, wherever they are served.

    Both calls raise GemingaError, and may be made again for an end that was heard before. A topic or subscription that
    is gone for good raises TopicNotFoundError or SubscriptionNotFoundError: there is nothing left to tell.
    """

    async def end_on_partition(self, txn_id: TxnId, topic: str, *, commit: bool, low_watermark: int) -> None:
        """Write the marker into the topic; on return it is on stable storage."""
        ...

    async def end_on_subscription(
        self, txn_id: TxnId, subscription: TxnSubscription, *, commit: bool, low_watermark: int
    ) -> None:
        """Let what it acknowledged there count, or come again; on return that is on stable storage."""
        ...


class Registrations(Protocol):
    """What coordinators know of participants: whoever holds something for a transaction must be told of its end."""

    def standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """As :meth:`find_standing`, if that is known at once; None: ask that."""
        ...

    async def find_standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """How the transaction stands to a topic (its full name) or a subscription that is to take the first of it.

        A coordinator that another broker has is asked; one that does not answer is believed to tell. Raises
        GemingaError.
        """
        ...

    async def ask_standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """As :meth:`find_standing`, and raises UnavailableError where nobody answers."""
        ...


class StandingsElsewhere(Protocol):
    """What coordinators at other brokers know of participants."""

    async def ask(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """What the broker with its coordinator says; None: that one can not be asked. Raises GemingaError."""
        ...


class BufferSnapshot(NamedTuple):
    """What is known of the aborted transactions of a topic up to a position; recovery reads on from there."""

    position: Position
    #: Transactions, and where their abort markers lie.
    aborts: tuple[tuple[TxnId, Position], ...] = ()


class BufferSnapshots(Protocol):
    """Where the snapshots of transaction buffers are kept, by full name of the topic. All raise GemingaError."""

    async def find(self, topic: str) -> BufferSnapshot | None:
        """The newest; None: the topic never had a transaction."""
        ...

    async def put(self, topic: str, snapshot: BufferSnapshot) -> None:
        """Keep this one instead; on return it is on stable storage."""
        ...

    async def remove(self, topic: str) -> None:
        """The topic is deleted."""
        ...


class HoldsBack(Protocol):
    """What waits for the end of transactions: a topic, or a subscription."""

    def hold(self) -> Hold | None:
        """What it waits for longest now; None: nothing."""
        ...


class RecordLog(Protocol):
    """An append-only log whose entries are deleted one by one once nobody needs them."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Text properties of the log."""
        ...

    async def add_properties(self, properties: Mapping[str, str]) -> None:
        """Add some, or replace those of the same names; durable on return. Raises StorageError."""
        ...

    async def claim(self) -> None:
        """Make sure that nobody else has opened the log since. Raises LedgerFencedError, StorageError."""
        ...

    async def append(self, data: bytes) -> Position:
        """Store an entry, behind all that were appended before. Raises GemingaError; then it may or may not be
        stored."""
        ...

    def append_now(self, data: bytes, done: Callable[[Position | GemingaError], None]) -> None:
        """The same for who does not wait in a task; ``done`` hears its position or the error, in the order of calls."""
        ...

    def append_later(self, data: bytes, done: Callable[[Position | GemingaError], None]) -> None:
        """The same for an entry that nobody waits for: it goes with the next that is appended, or after a moment.

        ``done`` hears its position or the error, before whoever appended something behind it.
        """
        ...

    async def replay(self, take: Callable[[bytes, Position], None]) -> None:
        """Give every entry that was not deleted, in order. Raises StorageError."""
        ...

    async def newest(self, take: Callable[[bytes, Position], None]) -> None:
        """Give the newest entries in order, those that were deleted too, as far as there are any. StorageError."""
        ...

    def delete(self, positions: Sequence[Position]) -> None:
        """Nobody needs these entries any more; some may come again after a crash."""
        ...

    async def flush(self) -> None:
        """Of what was deleted until now nothing comes again. Raises StorageError."""
        ...

    async def close(self) -> None:
        """Save what was deleted; nothing can be appended any more."""
        ...

    async def abandon(self) -> None:
        """As :meth:`close`, of one that broke or has another owner: nothing is saved, the next open begins anew."""
        ...
