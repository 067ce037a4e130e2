"""The transactions of a topic: its buffer, which is made with the first of them. Most topics never have one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from geminga.broker.publishing.life import TopicLife
from geminga.broker.topic.parts import Parts
from geminga.broker.topic.ports import KeptTransactions
from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.topic.transaction_buffer import TransactionBuffer


class TopicTransactions:
    """See the module. Its code is loaded when it is first needed."""

    __slots__ = ("_has_buffer", "_kept", "_life", "_name", "_parts")

    def __init__(self, name: TopicName, kept: KeptTransactions, parts: Parts, life: TopicLife) -> None:
        self._name = name
        self._kept = kept
        self._parts = parts
        self._life = life
        #: It had transactions, or has.
        self._has_buffer = False

    @property
    def buffer(self) -> TransactionBuffer | None:
        """None: there was no transaction yet."""
        if not self._has_buffer:
            return None
        from geminga.broker.topic.transaction_buffer import TransactionBuffer

        return self._parts.find(TransactionBuffer)

    async def load(self, *, is_known: bool) -> None:
        """If there were transactions, as its log may know, the buffer is among the parts from the next time they are
        followed. Raises MetadataError.
        """
        if is_known or await self._kept.has_snapshots(self._name):
            self._expect()

    def _expect(self) -> None:
        from geminga.broker.topic.transaction_buffer import TransactionBuffer

        # The last one: it too remembers what it admits, and hears only of what is stored.
        self._parts.register(TransactionBuffer)
        self._has_buffer = True

    async def with_logs(self, subscriptions: Collection[str]) -> list[str]:
        """Those of its subscriptions that acknowledged in transactions. Raises MetadataError."""
        return await self._kept.with_logs(self._name, subscriptions)

    async def drop_leftovers(self, subscription: str, there: Collection[str], ledgers: ManagedLedgerFactory) -> None:
        """Before a subscription is made: the log of an earlier one of that name whose deletion was cut off.

        Raises StorageError.
        """
        for each in await self.with_logs((subscription,)):
            if each not in there:
                await ledgers.delete(self._name.pending_ack_log(each).managed_ledger_name)

    async def delete_left(self, there: Collection[str], beside: ManagedLedger) -> None:
        """Logs of subscriptions whose deletion was cut off. Raises StorageError where the topic is another broker's."""
        await self._kept.delete_left(self._name, there, beside)

    async def use(self) -> TransactionBuffer:
        """The buffer, made with the first use. Raises GemingaError."""
        if not self._has_buffer:
            self._expect()
        if self.buffer is None:
            await self._parts.follow()
        buffer = self.buffer
        if buffer is None:
            raise self._life.closing_error()
        return buffer
