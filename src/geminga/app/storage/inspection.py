"""What ``geminga inspect`` tells of a stopped data directory, as plain documents: a cursor, a ledger, the journal."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from geminga.app.storage.stopped_directory import StoppedDirectory, StoredEntry
from geminga.bookie.core.journal_format import AddRecord, Fence
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import Recovered, recovery, state_of_record
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.managed_ledger.shared.metadata_io import cursor_path
from geminga.managed_ledger.shared.metadata_io import ledger_path as managed_ledger_path
from geminga.model import TopicName
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.model.topic_name import decode_name, encode_name
from geminga.wire.bookkeeper.digest import digest_for, read_header
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    decode_cursor_info,
    decode_managed_ledger_info,
    decode_position_info,
)

Document = dict[str, object]


class _LookedAt(NamedTuple):
    """What is told of an entry, without its bytes."""

    file: str
    size_bytes: int
    last_add_confirmed: int
    #: Its digest.
    is_wrong: bool


#: Holes and batches that are spelled out.
SHOWN_MAX: Final = 100


def journal(directory: StoppedDirectory) -> Document:
    """Every journal file: groups, records, where it ends."""
    return {"files": [dataclasses.asdict(file) for file in directory.journal_files()]}


def journal_records(directory: StoppedDirectory) -> list[Document]:
    """Every record, oldest first; payloads as sizes."""
    found: list[Document] = []
    for name, sequence, record in directory.records():
        one: Document = {"file": name, "sequence": sequence, "ledgerId": record.ledger_id}
        if isinstance(record, AddRecord):
            sizes = [len(entry) for entry in record.entries]
            one |= {"kind": "add", "firstEntryId": record.first_entry_id, "entries": len(sizes), "bytes": sum(sizes)}
        else:
            one["kind"] = "fence" if isinstance(record, Fence) else "ledger"
        found.append(one)
    return found


def ledger(directory: StoppedDirectory, ledger_id: int) -> Document:
    """A ledger's metadata and what of it is stored here. Raises DataDirectoryError."""
    metadata = _metadata(directory, ledger_id)
    digest = None if metadata is None else digest_for(metadata.digest_type, metadata.password)
    found: dict[int, _LookedAt] = {}
    for entry_id, (data, file) in directory.copies(ledger_id):
        is_wrong = digest is not None and isinstance(digest.payload(ledger_id, entry_id, data), CorruptionError)
        found[entry_id] = _LookedAt(file, len(data), read_header(data).last_add_confirmed, is_wrong)
    if metadata is None and not found:
        raise DataDirectoryError(f"ledger {ledger_id} is not known in {directory.path}")
    ids = sorted(found)
    document: Document = {
        "ledgerId": ledger_id,
        "metadata": None if metadata is None else _metadata_document(metadata),
        "entries": len(found),
        "entryIds": _runs(ids),
        "bytes": sum(entry.size_bytes for entry in found.values()),
        "entriesByFile": Counter(found[entry_id].file for entry_id in ids),
        "lastAddConfirmed": max((entry.last_add_confirmed for entry in found.values()), default=-1),
    }
    if metadata is not None:
        document["entriesWithWrongDigest"] = [entry_id for entry_id in ids if found[entry_id].is_wrong]
    return document


def cursors(directory: StoppedDirectory, topic: str, subscription: str | None) -> list[Document]:
    """The cursors of a topic, or one of them, as a broker that starts here would find them.

    Raises DataDirectoryError.
    """
    name = TopicName.parse(topic).managed_ledger_name
    value = directory.value(managed_ledger_path(name))
    if value is None:
        raise DataDirectoryError(f"{topic} is not a topic in {directory.path}")
    infos = [
        LedgerInfo(item.ledger_id, item.entries, item.size_bytes, item.closed_ms)
        for item in decode_managed_ledger_info(value).ledgers
    ]
    if infos and not infos[-1].closed_ms:
        # Left open: the list does not say how many entries it has.
        infos[-1].entries = max((entry_id for entry_id, _ in directory.copies(infos[-1].ledger_id)), default=-1) + 1
    ledgers = LedgerList(infos)
    names = directory.children(managed_ledger_path(name))
    if subscription is not None:
        if encode_name(subscription) not in names:
            known = ", ".join(map(decode_name, names)) or "none"
            raise DataDirectoryError(f"{topic} has no subscription {subscription}; it has {known}")
        names = [encode_name(subscription)]
    return [_cursor(directory, name, cursor, ledgers) for cursor in names]


def _cursor(directory: StoppedDirectory, managed_ledger: str, name: str, ledgers: LedgerList) -> Document:
    value = directory.value(cursor_path(managed_ledger, name))
    if value is None:
        raise DataDirectoryError(f"cursor {name} of {managed_ledger} has no node")
    record = decode_cursor_info(value)
    of_node = Recovered(state_of_record(record, ledgers), {})
    found, payloads = of_node, {}
    if record.cursor_ledger_id >= 0:
        payloads = _cursor_entries(directory, record)
        found = _recovered(payloads, ledgers) or of_node
    state = found.state
    state.forget_missing(ledgers)
    return {
        "cursor": decode_name(name),
        "node": {
            "cursorsLedgerId": record.cursor_ledger_id,
            "markDeletePosition": str(record.mark_delete),
            "lastActive": record.last_active_ms,
        },
        **_state_document(state, ledgers),
        "cursorLedger": {
            "entries": len(payloads),
            "markers": sum(_kind(payload) == "marker" for payload in payloads.values()),
            "segments": sum(_kind(payload) == "segment" for payload in payloads.values()),
            "lastMarker": found.marker_entry_id,
            "segmentsInUse": [
                {"ledgerId": part[0], "part": part[1], "entryIds": list(ids), "bytes": _size(payloads, ids)}
                for part, ids in sorted(found.refs.items())
            ],
        },
        "newestTopicLedgers": [
            {"ledgerId": info.ledger_id, "entries": info.entries} for info in ledgers.infos[-SHOWN_MAX:]
        ],
        "properties": dict(state.properties),
        "cursorProperties": dict(record.cursor_properties),
    }


def _state_document(state: CursorState, ledgers: LedgerList) -> Document:
    return {
        "markDeletePosition": str(state.mark_delete),
        "backlog": state.backlog(ledgers),
        "acknowledgedEntries": state.acked.count,
        "acknowledgedRanges": state.acked.range_count,
        "oldestRanges": [f"{r.ledger_id}:{r.first}..{r.last}" for r in state.acked.ranges(SHOWN_MAX)],
        "partlyAcknowledgedBatches": state.batches.count,
        "oldestBatches": [
            {"position": f"{batch.ledger_id}:{batch.entry_id}", "unacknowledged": f"{batch.bits:b}"[::-1]}
            for batch, _ in zip(state.batches, range(SHOWN_MAX), strict=False)
        ],
    }


def _cursor_entries(directory: StoppedDirectory, record: CursorInfoRecord) -> dict[int, bytes | None]:
    metadata = _metadata(directory, record.cursor_ledger_id)
    if metadata is None:
        raise DataDirectoryError(f"the cursor's ledger {record.cursor_ledger_id} does not exist")
    return _payloads(directory.entries(record.cursor_ledger_id), metadata, record.cursor_ledger_id)


def _recovered(payloads: Mapping[int, bytes | None], ledgers: LedgerList) -> Recovered | None:
    steps = recovery(max(payloads, default=-1), ledgers)
    try:
        first, last = next(steps)
        while True:
            first, last = steps.send([payloads.get(entry_id) for entry_id in range(first, last + 1)])
    except StopIteration as stop:
        found: Recovered | None = stop.value
        return found


def _metadata(directory: StoppedDirectory, ledger_id: int) -> LedgerMetadata | None:
    value = directory.value(ledger_path(ledger_id)) if ledger_id >= 0 else None
    return None if value is None else decode_ledger_metadata(value, ledger_id)


def _metadata_document(metadata: LedgerMetadata) -> Document:
    return {
        "state": metadata.state.name,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorum": metadata.write_quorum,
        "ackQuorum": metadata.ack_quorum,
        "digestType": metadata.digest_type.name,
        "lastEntryId": metadata.last_entry_id if metadata.is_closed else None,
        "length": metadata.length_bytes if metadata.is_closed else None,
        "createdMs": metadata.created_ms,
        "customMetadata": {key: value.decode(errors="replace") for key, value in metadata.custom_metadata.items()},
    }


def _payloads(stored: Mapping[int, StoredEntry], metadata: LedgerMetadata, ledger_id: int) -> dict[int, bytes | None]:
    """Payloads by entry id, None where the digest is wrong."""
    digest = digest_for(metadata.digest_type, metadata.password)
    payloads: dict[int, bytes | None] = {}
    for entry_id, entry in stored.items():
        payload = digest.payload(ledger_id, entry_id, entry.data)
        payloads[entry_id] = None if isinstance(payload, CorruptionError) else payload
    return payloads


def _kind(payload: bytes | None) -> str:
    if payload is None:
        return "damaged"
    try:
        record = decode_position_info(payload)
    except CorruptionError:
        return "damaged"
    return "marker" if record.marker is not None else "segment" if record.segment is not None else "Pulsar"


def _size(payloads: Mapping[int, bytes | None], entry_ids: Sequence[int]) -> int:
    return sum(len(payloads[entry_id] or b"") for entry_id in entry_ids)


def _runs(ids: Sequence[int]) -> list[str]:
    """``0..41, 43``: ascending ids as runs."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [f"{first}..{last}" if last > first else str(first) for first, last in runs]
