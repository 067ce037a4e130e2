"""What publishing in transactions asks of a topic, and a topic of what is kept of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Protocol

from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId

if TYPE_CHECKING:
    from geminga.broker.subscription.ports import PendingAckLogs
    from geminga.managed_ledger import ManagedLedger
    from geminga.transaction.ports import BufferSnapshots, HoldsBack, Registrations

#: Of a managed ledger: it has messages of transactions, and without a snapshot all of it is read. Geminga's own.
TRANSACTIONS_PROPERTY: Final = "geminga.transactions"
#: Of the same: subscriptions whose pending-ack logs are being deleted, a JSON array of names.
GOING_LOGS_PROPERTY: Final = "geminga.going-logs"


class KeptTransactions(Protocol):
    """What topics and subscriptions keep of transactions. What is awaited may raise MetadataError."""

    async def has_snapshots(self, topic: TopicName) -> bool:
        """Whether topics of its namespace had transactions. Loads no code."""
        ...

    async def with_logs(self, topic: TopicName, subscriptions: Collection[str]) -> list[str]:
        """Those that acknowledged in transactions. Loads no code."""
        ...

    async def delete_left(self, topic: TopicName, there: Collection[str], beside: ManagedLedger) -> None:
        """Logs of subscriptions whose deletion was cut off; ``there``: those that the topic has. Raises StorageError
        where it is another broker's."""
        ...

    @property
    def snapshots(self) -> BufferSnapshots:
        """Of transaction buffers."""
        ...

    @property
    def registrations(self) -> Registrations:
        """What coordinators know of participants."""
        ...

    @property
    def pending_ack_logs(self) -> PendingAckLogs:
        """Of subscriptions."""
        ...

    def watch_held(self, holding: HoldsBack) -> None:
        """It begins to wait for the end of a transaction."""
        ...


class TakesTransactions(Protocol):
    """The part of a topic that takes messages of transactions."""

    def is_ready_for(self, txn_id: TxnId) -> bool:
        """Whether :meth:`check_may_publish` can tell; otherwise :meth:`get_ready_for` comes first."""
        ...

    async def get_ready_for(self, txn_id: TxnId) -> None:
        """Be ready for messages of a transaction. Raises GemingaError."""
        ...

    def check_may_publish(self, txn_id: TxnId) -> None:
        """Raise GemingaError if the transaction takes nothing more here, or never did."""
        ...

    async def end(self, txn_id: TxnId, *, commit: bool, low_watermark: int) -> None:
        """How it ended, durable on return. Raises GemingaError."""
        ...


class TopicOfTransactions(Protocol):
    """The transactions of a topic that takes any."""

    @property
    def buffer(self) -> TakesTransactions | None:
        """What takes messages of transactions; None: there was none yet."""
        ...

    async def use(self) -> TakesTransactions:
        """The buffer, made with the first use. Raises GemingaError."""
        ...
