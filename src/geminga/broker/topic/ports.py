"""What publishing in transactions asks of a topic, and a topic of what is kept of them, and of other clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Protocol

from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId

if TYPE_CHECKING:
    from geminga.broker.subscription.ports import PendingAckLogs
    from geminga.broker.topic.parts import PartTopic
    from geminga.managed_ledger import ManagedCursor
    from geminga.transaction.ports import BufferSnapshots, HoldsBack, Registrations

#: Of a managed ledger: it has messages of transactions, and without a snapshot all of it is read. Geminga's own.
TRANSACTIONS_PROPERTY: Final = "geminga.transactions"


class KeptTransactions(Protocol):
    """What topics and subscriptions keep of transactions. What is awaited may raise MetadataError."""

    async def has_snapshots(self, topic: TopicName) -> bool:
        """Whether topics of its namespace had transactions. Loads no code."""
        ...

    async def with_logs(self, topic: TopicName, subscriptions: Collection[str]) -> list[str]:
        """Those that acknowledged in transactions. Loads no code."""
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


class CopiedTopic(Protocol):
    """The copying of one topic to one other cluster: a replicator."""

    @property
    def state(self) -> str:
        """What it does, in a word."""
        ...

    @property
    def reason(self) -> str:
        """Why nothing is copied; empty: it is."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it copies now."""
        ...

    @property
    def cursor(self) -> ManagedCursor:
        """What is acknowledged by it is over there, or not meant for that cluster."""
        ...

    @property
    def backlog(self) -> int:
        """Entries that are not copied, or passed over, yet."""
        ...

    @property
    def delay_s(self) -> float:
        """How long ago the first was published that is on its way; 0: nothing is."""
        ...

    def totals(self) -> tuple[int, int]:
        """Messages and bytes that were copied since the topic was loaded."""
        ...

    def stop(self) -> asyncio.Task[None] | None:
        """Copy nothing more; a task that ends when the link is closed, None: there was none."""
        ...


class RemoteClusters(Protocol):
    """The other clusters, and how topics are copied to them."""

    @property
    def local(self) -> str:
        """The name of this one."""
        ...

    @property
    def starts_at_earliest(self) -> bool:
        """Whether a topic is copied from its beginning, or from where it was when that was asked for."""
        ...

    def copy(self, topic: PartTopic, cluster: str, cursor: ManagedCursor) -> CopiedTopic:
        """Begin to copy ``topic`` to ``cluster``, from where ``cursor`` is; loads the code for it."""
        ...
