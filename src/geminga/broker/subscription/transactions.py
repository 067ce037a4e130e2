"""What a subscription acknowledges in transactions: made with the first use, for most never do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.model import Position
from geminga.model.errors import (
    GemingaError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
    NotAllowedError,
    StorageError,
    UnavailableError,
)
from geminga.model.txn_id import TxnId
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.broker.subscription.transaction_acks import AckingSubscription, TransactionAcks

_log = get_logger(__name__)


class SubscriptionTransactions:
    """See the module. Its code is loaded when it is first needed."""

    __slots__ = ("_is_unread", "_name", "_subscription", "used")

    def __init__(self, subscription: AckingSubscription, *, is_allowed: bool) -> None:
        """``is_allowed``: whether it may acknowledge in transactions at all."""
        #: None: it may not. One that lives no longer than its consumer is in no cycle then that a collector finds.
        self._subscription = subscription if is_allowed else None
        self._name = subscription.name
        #: What it acknowledges; None: nothing yet.
        self.used: TransactionAcks | None = None
        #: What it acknowledged could not be read: nobody may consume.
        self._is_unread = False

    @property
    def acks(self) -> TransactionAcks | None:
        """What it acknowledges, made with the first use; None: it may not."""
        subscription = self._subscription
        if self.used is None and subscription is not None:
            from geminga.broker.subscription.transaction_acks import TransactionAcks

            self.used = TransactionAcks(subscription)
        return self.used

    @property
    def held(self) -> Callable[[Position], int] | None:
        """As :class:`.ports.HoldsMessages` says."""
        acks = self.used
        return acks.held if acks is not None and acks.is_holding else None

    async def load(self) -> None:
        """There is a log: bring back what transactions hold. If it can not be read, nobody consumes here until it can:
        the topic and its other subscriptions need nothing of it. Raises GemingaError."""
        subscription = self._subscription
        if subscription is None or self.acks is None:
            return
        try:
            await self.acks.load()
        except (LedgerFencedError, LedgerClosedError, MetadataError) as failure:
            raise failure
        except StorageError as error:
            self._is_unread = True
            _log.error(
                "%s %s: what transactions hold can not be read: %s", subscription.topic.name, subscription.name, error
            )

    async def require(self) -> None:
        """Somebody wants to consume: try again what :meth:`load` could not read. UnavailableError."""
        if self._is_unread and self.acks is not None:
            try:
                await self.acks.load()
            except StorageError as error:
                raise UnavailableError(
                    f"What transactions acknowledged on subscription {self._name} can not be read now, try again later"
                ) from error
            self._is_unread = False

    def check_read(self) -> None:
        """Raise UnavailableError while nobody may consume: what is held could be delivered."""
        if self._is_unread:
            raise UnavailableError(
                f"What transactions acknowledged on subscription {self._name} is not read yet, try again"
            )

    async def deletion_failed(self) -> None:
        """The subscription stays: what is stored is read anew before anybody consumes."""
        if self.used is None:
            return
        self.used = None
        try:
            await self.load()
        except GemingaError as error:
            self._is_unread = True
            _log.warning("%s: what transactions hold can not be read now: %s", self._name, error)

    async def begin_deletion(self) -> None:
        """The subscription is about to go: nothing is taken any more, and its log is noted. Raises GemingaError."""
        if self.used is not None:
            await self.used.let_go()
            await self.used.note_deletion()

    async def delete_log(self) -> None:
        """The subscription is gone. A log that stays is nobody's, and goes with the next load, and before there is one
        of that name again."""
        if self.used is not None:
            try:
                await self.used.delete_log()
            except GemingaError as error:
                _log.warning("%s: the log of its transactions is not deleted: %s", self._name, error)

    async def leave_to_cursor(self) -> None:
        """Before the cursor is moved: what was committed counts by it alone from now on. Raises StorageError."""
        if self.used is not None:
            await self.used.leave_to_cursor()

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """Let what a transaction acknowledged count, or come again; durable on return. Raises GemingaError."""
        if self.acks is None:
            raise NotAllowedError(f"Subscription {self._name} takes no transactions")
        await self.acks.end(txn_id, commit=commit, low_watermark=low_watermark)
