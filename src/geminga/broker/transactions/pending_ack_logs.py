"""Where the pending-ack logs of subscriptions are: each a managed ledger beside its topic's, under Pulsar's name."""

from __future__ import annotations

from typing import Final

from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Part
from geminga.transaction.logs import LedgerRecordLog
from geminga.transaction.ports import RecordLog

#: Pulsar's name of the cursor of such a log.
LOG_CURSOR: Final = "__pending_ack_state"


def log_name(topic: TopicName, subscription: str) -> str:
    """The managed ledger's name."""
    return topic.pending_ack_log(subscription).managed_ledger_name


class LedgerPendingAckLogs:
    """See the module."""

    __slots__ = ("_ledgers",)

    def __init__(self, ledgers: ManagedLedgerFactory) -> None:
        self._ledgers = ledgers

    async def exists(self, topic: TopicName, subscription: str) -> bool:
        """Whether there is one. Raises MetadataError."""
        return await self._ledgers.exists(log_name(topic, subscription))

    async def open(self, topic: TopicName, subscription: str, part: Part, beside: ManagedLedger) -> RecordLog:
        """The log, made if there is none. Raises StorageError."""
        ledger = await self._ledgers.open(log_name(topic, subscription))
        ledger.tenure.part, ledger.stored_as = part, beside.stored_as
        ledger.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        try:
            return await LedgerRecordLog.open(ledger, LOG_CURSOR, part)
        except GemingaError:
            # Another broker may have it: the next attempt finds what is stored by then.
            await ledger.close(is_broken=True)
            raise

    async def delete(self, topic: TopicName, subscription: str) -> None:
        """The subscription is gone. Raises StorageError."""
        await self._ledgers.delete(log_name(topic, subscription))
