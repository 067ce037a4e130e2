"""Where the pending-ack logs of subscriptions are: each a managed ledger beside its topic's, under Pulsar's name."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final, Protocol

from geminga.broker.topic.ports import GOING_LOGS_PROPERTY
from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
from geminga.managed_ledger.rules.unreadable import is_lost
from geminga.model.errors import GemingaError, LedgerClosedError, LedgerFencedError, StorageError
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, get_logger
from geminga.transaction.logs import LedgerRecordLog
from geminga.transaction.ports import RecordLog

#: Pulsar's name of the cursor of such a log.
LOG_CURSOR: Final = "__pending_ack_state"
_log = get_logger(__name__)


class LogDeletion(Protocol):
    """As far as it concerns what is left of one."""

    async def delete(self, topic: TopicName, subscription: str, beside: ManagedLedger) -> None:
        """Delete the log of a subscription that is gone. Raises StorageError."""
        ...


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

    async def note_deletion(self, subscription: str, beside: ManagedLedger) -> None:
        """The subscription is about to go, and its log behind it: :func:`delete_left`. Raises StorageError."""
        await beside.stored.change_property(GOING_LOGS_PROPERTY, lambda noted: _text({*_names(noted), subscription}))

    async def delete(self, topic: TopicName, subscription: str, beside: ManagedLedger) -> None:
        """The subscription is gone. Raises StorageError; what is lost stays, and is not tried again."""
        try:
            await self._ledgers.delete(log_name(topic, subscription))
        except StorageError as error:
            if is_lost(error):
                await _forget(beside, subscription)
            raise
        await _forget(beside, subscription)


async def delete_left(logs: LogDeletion, topic: TopicName, there: Collection[str], beside: ManagedLedger) -> None:
    """Logs of subscriptions whose deletion was cut off, of a topic that is loaded: ``there`` are those that it has.

    One that can not be deleted now stays noted. Raises LedgerFencedError, LedgerClosedError: the topic is another's.
    """
    names = _names(beside.stored.properties.get(GOING_LOGS_PROPERTY, ""))
    if any(name not in there for name in names):
        # Another owner may have made one of them anew by now, with a log of its own.
        await beside.stored.claim()
    for subscription in names:
        try:
            if subscription in there:
                await _forget(beside, subscription)
            else:
                await logs.delete(topic, subscription, beside)
        except (LedgerFencedError, LedgerClosedError) as failure:
            raise failure
        except GemingaError as error:
            _log.warning("%s %s: the log of its transactions is not deleted: %s", topic, subscription, error)


async def _forget(beside: ManagedLedger, subscription: str) -> None:
    await beside.stored.change_property(GOING_LOGS_PROPERTY, lambda noted: _text({*_names(noted)} - {subscription}))


def _names(noted: str) -> list[str]:
    """Of the property; of one that is none, as somebody else may have written it, nothing."""
    try:
        found = json.loads(noted or "[]")
    except (ValueError, RecursionError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _text(names: set[str]) -> str:
    return json.dumps(sorted(names), separators=(",", ":")) if names else ""
