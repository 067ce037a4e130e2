"""Internal statistics: ledgers and cursors of a loaded topic, and what the metadata store has of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.resources.documents import Document, Json
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.broker.subscription.stats import iso_time
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic
from geminga.broker.topic.delays import delays_stats
from geminga.broker.topic.non_persistent import NonPersistentTopic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedger
from geminga.managed_ledger.info import StoredInfo
from geminga.managed_ledger.stats import cursor_stats, cursors_told, ledger_stats
from geminga.managed_ledger.stats import internal_stats as whole_stats
from geminga.metadata.ports import Stat
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.wire.managed_ledger.ledger_info import is_complete

if TYPE_CHECKING:
    from geminga.broker.admission.topic_schemas import Schemas
    from geminga.runtime import Turns

#: What Pulsar tells of the cursors of a non-persistent topic, and of its ledgers: there are none.
NO_CURSOR: Final[Mapping[str, Json]] = {
    "waitingReadOp": False,
    "pendingReadOps": 0,
    "messagesConsumedCounter": 0,
    "cursorLedger": 0,
    "cursorLedgerLastEntry": 0,
    "active": False,
    "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0,
    "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}
NO_LEDGER: Final[Mapping[str, Json]] = {
    "numberOfEntries": 0,
    "totalSize": 0,
    "currentLedgerEntries": 0,
    "currentLedgerSize": 0,
    "waitingCursorsCount": 0,
    "pendingAddEntriesCount": 0,
}
#: Each is five values.
LEDGERS_A_STEP: Final = 16
#: Where nothing was compacted.
NO_COMPACTED_LEDGER: Final[Mapping[str, Json]] = {
    "ledgerId": -1,
    "entries": -1,
    "size": -1,
    "offloaded": False,
    "underReplicated": False,
}


async def internal_stats(schemas: Schemas, topic: Topic, turns: Turns) -> Document:
    """``PersistentTopicInternalStats``, or what is left of it without a log. Raises StorageError."""
    if not isinstance(topic, PersistentTopic):
        added = topic.publishing.entries_in if isinstance(topic, NonPersistentTopic) else 0
        cursors: Document = {name: {**NO_CURSOR} for name in topic.subscriptions}
        return {"entriesAddedCounter": added, **NO_LEDGER, "cursors": cursors}
    # As in Pulsar, where to load a topic for this question is to open a ledger.
    await topic.ledger.open_ledger()
    await _look_up_creation(topic)
    part = topic.parts.find(TopicCompaction)
    if part is not None and part.served is not None:
        with suppress(StorageError):  # what is not known of it is -1
            await part.served.open()
    stats = await turns.through(log_steps(topic))
    stats["schemaLedgers"] = [
        {
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.size_bytes,
            "offloaded": False,
            "underReplicated": False,
        }
        for ledger in await schemas.store.ledgers(schema_id_of(topic.name))
    ]
    return stats


def ledger_document(ledger: ManagedLedger) -> Document:
    """``ManagedLedgerInternalStats`` of a log that nobody dispatches from."""
    stats = _dated(whole_stats(ledger), "lastLedgerCreatedTimestamp")
    for cursor in cast("dict[str, Document]", stats["cursors"]).values():
        _dated(cursor, "lastLedgerSwitchTimestamp")
    return stats


def _dated(stats: Mapping[str, object], field: str) -> Document:
    """With the time there as Pulsar tells it."""
    document = cast("Document", stats)
    document[field] = iso_time(cast("int", document[field]))
    return document


def log_steps(topic: PersistentTopic) -> Generator[None, None, Document]:
    """The log and its cursors, and what Pulsar has no names for; a step for each cursor, and for some ledgers."""
    cursors: Document = {}
    by_cursor = {item.cursor.name: item for item in topic.subscriptions.values()}
    waiting = 0
    for name, found in cursors_told(topic.ledger):
        yield
        cursors[name] = cursor = _dated(cursor_stats(topic.ledger, found), "lastLedgerSwitchTimestamp")
        dispatch = by_cursor[name].dispatch if name in by_cursor else None
        if dispatch is not None:
            waiting += dispatch.is_waiting
            cursor["waitingReadOp"] = dispatch.is_waiting
            cursor["subscriptionHavePendingRead"] = dispatch.is_waiting or bool(cursor["subscriptionHavePendingRead"])
            if isinstance(dispatch, SharedDispatch):
                cursor["subscriptionHavePendingReplayRead"] = dispatch.replays.is_busy
    for _ in topic.ledger.ledgers.infos[::LEDGERS_A_STEP]:
        yield
    stats = _dated(ledger_stats(topic.ledger), "lastLedgerCreatedTimestamp")
    stats["waitingCursorsCount"] = waiting
    stats["cursors"] = cursors
    parts = {name: cast("Document", dict(each)) for name, each in topic.parts.stats().items() if each}
    stats["geminga"] = {**parts, **{name: section(topic) for name, section in INTERNAL_SECTIONS.items()}}
    stats["compactedLedger"] = {**NO_COMPACTED_LEDGER, **_compacted_ledger(topic)}
    return stats


def _compacted_ledger(topic: PersistentTopic) -> Document:
    part = topic.parts.find(TopicCompaction)
    ledger = part.served if part is not None else None
    if ledger is None:
        return {}
    found: Document = {"ledgerId": ledger.ledger_id}
    if ledger.info is not None:
        found["entries"], found["size"] = ledger.info.entries, ledger.info.size_bytes
    return found


async def _look_up_creation(topic: PersistentTopic) -> None:
    """When the last ledger was made: a list that was loaded does not say, the ledger's metadata do."""
    with suppress(StorageError):
        await topic.ledger.reader.look_up_creation()


def internal_info(info: StoredInfo, now_ms: int) -> Document:
    """``ManagedLedgerInfo``. As in Pulsar an open ledger has no counts, and the time of the question."""
    ledgers: list[Json] = []
    for ledger in info.record.ledgers:
        counts: Document = {"entries": ledger.entries, "size": ledger.size_bytes} if ledger.closed_ms else {}
        ledgers.append(
            {
                "ledgerId": ledger.ledger_id,
                **counts,
                "timestamp": ledger.closed_ms or now_ms,
                "isOffloaded": bool(ledger.offload_context) and is_complete(ledger.offload_context),
            }
        )
    document: Document = {**_node(info.stat), "ledgers": ledgers}
    if info.record.terminated is not None:
        document["terminatedPosition"] = _position(info.record.terminated)
    if info.record.properties:
        document["properties"] = {**info.record.properties}
    cursors: Document = {}
    for name, (record, stat) in info.cursors.items():
        cursor: Document = {
            **_node(stat),
            "cursorsLedgerId": record.cursor_ledger_id,
            "markDelete": _position(record.mark_delete),
        }
        if record.ranges:
            cursor["individualDeletedMessages"] = [
                {"from": _position(each.lower), "to": _position(each.upper)} for each in record.ranges
            ]
        cursors[name] = cursor
    document["cursors"] = cursors
    return document


def _node(stat: Stat) -> Document:
    return {
        "version": stat.version,
        "creationDate": iso_time(stat.created_ms),
        "modificationDate": iso_time(stat.modified_ms),
    }


def _position(position: Position) -> Document:
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id}


def _deduplication(topic: PersistentTopic) -> Document:
    if topic.dedup is None:
        return {"status": "Disabled"}
    return {"status": "Enabled", **cast("Document", topic.dedup.stats())}


def _delayed_delivery(topic: PersistentTopic) -> Document:
    """Entries that wait for their time, by subscription, and the index that they share."""
    waiting: Document = {}
    for name, subscription in topic.subscriptions.items():
        dispatch = subscription.dispatch if isinstance(subscription, Subscription) else None
        if isinstance(dispatch, SharedDispatch):
            waiting[name] = dispatch.due.count if dispatch.due is not None else 0
    return {"waitingEntries": waiting, **delays_stats(topic)}


def _bookies(topic: PersistentTopic) -> Document:
    """How many bookies take entries or are there without, and how many a new ledger of the topic asks for."""
    wanted, bookkeeper = topic.ledger.persistence, topic.services.ledgers.bookkeeper
    return {
        "available": bookkeeper.available_count(),
        "readOnly": bookkeeper.read_only_count(),
        "ensembleSize": wanted.ensemble_size,
        "writeQuorum": wanted.write_quorum,
        "ackQuorum": wanted.ack_quorum,
    }


#: What the internal statistics of a topic tell besides Pulsar's, by name, where a part's own numbers are not all of it.
INTERNAL_SECTIONS: Final[Mapping[str, Callable[[PersistentTopic], Document]]] = {
    "deduplication": _deduplication,
    "delayedDelivery": _delayed_delivery,
    "bookies": _bookies,
}
