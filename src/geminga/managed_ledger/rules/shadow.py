"""A log that shows the ledgers of another one, its source: which one, and how its list follows that one's. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.errors import InvalidTopicNameError
from geminga.model.position import Position
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.wire.managed_ledger import LedgerRecord


def source_of(properties: Mapping[str, str], name: str) -> str | None:
    """The managed ledger whose ledgers the one called ``name`` shows; None: it has its own.

    A partition's source is the partition of the same number, unless a partition is named. Raises
    InvalidTopicNameError.
    """
    text = properties.get(SHADOW_SOURCE, "")
    return source_topic(text, TopicName.from_managed_ledger_name(name)).managed_ledger_name if text else None


def source_topic(text: str, shadow: TopicName) -> TopicName:
    """The topic that ``shadow`` shows, given its property. Raises InvalidTopicNameError."""
    source = TopicName.parse(text)
    if shadow.is_partition and not source.is_partition:
        source = source.with_partition(shadow.partition)
    if not source.is_persistent:
        raise InvalidTopicNameError("the source of a shadow topic must be a persistent topic")
    return source


def gone_of(ledgers: LedgerList, records: Sequence[LedgerRecord]) -> list[int]:
    """Ledgers of the list that the source has no more: trimmed, given up, or deleted with it."""
    names = {record.ledger_id for record in records}
    return [info.ledger_id for info in ledgers.infos if info.ledger_id not in names]


def follow(ledgers: LedgerList, records: Sequence[LedgerRecord]) -> list[int]:
    """Have what the source's node has; what is known already of an open ledger stays known. Ids of ledgers that lie
    elsewhere now: they are opened anew."""
    last = ledgers.last
    moved: list[int] = []
    for record in records:
        info = ledgers.find(record.ledger_id)
        if info is None:
            if last is None or record.ledger_id > last.ledger_id:
                ledgers.append(_info_of(record))
            continue
        if info.offload_context != record.offload_context:
            moved.append(record.ledger_id)
            info.offload_context = record.offload_context
        info.properties = record.properties
        if record.is_closed:
            info.entries, info.size_bytes, info.closed_ms = record.entries, record.size_bytes, record.closed_ms
    ledgers.remove(())  # counts of ledgers may be others
    return moved


def confirm(ledgers: LedgerList, last: Position, size_bytes: int) -> bool:
    """The source says that its log is stored up to ``last``, whose ledger has ``size_bytes``; whether that ledger is in
    the list: else the list is behind."""
    info = ledgers.find(last.ledger_id)
    if info is None:
        newest = ledgers.last
        return newest is not None and newest.ledger_id > last.ledger_id
    if not info.closed_ms and last.entry_id + 1 > info.entries:
        info.entries, info.size_bytes = last.entry_id + 1, max(info.size_bytes, size_bytes)
    return True


def _info_of(record: LedgerRecord) -> LedgerInfo:
    return LedgerInfo(
        record.ledger_id,
        record.entries if record.is_closed else 0,
        record.size_bytes if record.is_closed else 0,
        record.closed_ms,
        record.offload_context,
        properties=record.properties,
    )
