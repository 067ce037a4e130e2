"""What a lake has of the topics of a batch, read in the driver: manifests, footers, and the tasks that come of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from geminga.lake.core.manifest import Manifest, ManifestLedger, decode_manifest
from geminga.lake.core.names import MANIFESTS, directory_of, parse_manifest_file
from geminga.lake.core.rows import CHUNK, ENCRYPTED, MESSAGE, UNDECODABLE
from geminga.lake.parquet import LedgerFileReader
from geminga.lake.store import LakeStore
from geminga.lake.stores import open_store
from geminga.model import TopicName
from geminga.model.errors import CorruptionError, DiskIOError
from geminga.runtime import get_logger
from geminga.spark.source_rules.errors import LakeError
from geminga.spark.source_rules.lake_plan import Piece, PlannedFile, Unit, pack, units_of
from geminga.spark.source_rules.offsets import StreamOffset
from geminga.spark.source_rules.options import LakeChoice, ReaderConfiguration, SourceOptions
from geminga.spark.source_rules.planner import ranges_of

_log = get_logger(__name__)

#: Kinds of rows that only the broker's readers make messages of: ledgers that have one are read from the broker.
BROKER_KINDS: Final = (CHUNK, ENCRYPTED, UNDECODABLE)
#: Tasks of one batch read at most, as without a lake.
TASKS_MAX: Final = 4096
#: A manifest may be replaced between the listing and the reading of it; so often it is looked for.
_LOOKS: Final = 3
#: A range of the broker is not cut finer than this if no size was asked for.
_GOAL_BYTES: Final = 8 << 20


@lru_cache(maxsize=8)
def store_of(lake: LakeChoice) -> LakeStore:
    """The store, one for each process. Raises LakeError."""
    try:
        return open_store("", {"root": lake.root, "region": lake.region, "serviceEndpoint": lake.endpoint})
    except OSError as error:
        raise LakeError(f"lake.root={lake.root}: {error}") from error


def plan_with_lake(start: StreamOffset, end: StreamOffset, options: SourceOptions) -> list[tuple[Piece, ...]]:
    """The tasks of [start, end): every message of it is in exactly one of them. Blocks; raises LakeError."""
    units, _ = units_with_lake(start, end, options)
    return pack_units(units, options)


def units_with_lake(
    start: StreamOffset, end: StreamOffset, options: SourceOptions
) -> tuple[list[Unit], list[PlannedFile]]:
    """What [start, end) is divided into, and the ledgers that are read from files. Blocks; raises LakeError."""
    assert options.lake is not None
    store = store_of(options.lake)
    goal = options.target_bytes_per_task or _GOAL_BYTES
    units: list[Unit] = []
    used: list[PlannedFile] = []
    for one in ranges_of(start, end):
        ledgers = [
            found
            for ledger, directory in named_ledgers(store, one.topic)
            if one.start.ledger_id <= ledger.ledger_id <= one.end.ledger_id
            and (found := _look(store, directory, ledger, options.bounded_reader)) is not None
        ]
        units += units_of(one, ledgers, goal)
        used += ledgers
    return units, used


def pack_units(units: Sequence[Unit], options: SourceOptions) -> list[tuple[Piece, ...]]:
    """The units in tasks, as many as the options say."""
    tasks = options.tasks_max
    if options.target_bytes_per_task:
        tasks = max(1, min(TASKS_MAX, -(-sum(unit.size_bytes for unit in units) // options.target_bytes_per_task)))
    return pack(units, tasks)


def named_ledgers(store: LakeStore, topic: str) -> list[tuple[ManifestLedger, str]]:
    """What the newest manifest of a topic names, and the directory; nothing without one. Raises LakeError."""
    directory = directory_of(TopicName.parse(topic))
    try:
        manifest = _newest(store, f"{directory}/{MANIFESTS}")
    except (OSError, CorruptionError) as error:
        raise LakeError(f"{topic}: the manifest below {store.root}/{directory} can not be read: {error}") from error
    if manifest is None:
        return []
    if manifest.topic != topic:
        raise LakeError(f"{topic}: the manifest in {store.root}/{directory} is that of {manifest.topic}")
    return [(ledger, directory) for ledger in manifest.ledgers]


def _newest(store: LakeStore, directory: str) -> Manifest | None:
    for look in range(_LOOKS):
        names = {found: file.name for file in store.list(directory) if (found := parse_manifest_file(file.name))}
        if not names:
            return None
        path = f"{directory}/{names[max(names)]}"
        try:
            return decode_manifest(store.read_bytes(path), f"{store.root}/{path}")
        except FileNotFoundError:
            if look + 1 == _LOOKS:
                raise
    return None


def _look(store: LakeStore, directory: str, ledger: ManifestLedger, reader: ReaderConfiguration) -> PlannedFile | None:
    """What is needed to plan with a ledger; None: the broker is asked for it."""
    path = f"{directory}/{ledger.file}"
    try:
        file = LedgerFileReader(store, path)
    except (CorruptionError, DiskIOError) as error:
        _log.warning("ledger %d is read from the broker: %s", ledger.ledger_id, error)
        return None
    is_it = (file.facts.ledger_id, file.facts.entries) == (ledger.ledger_id, ledger.entries)
    if not is_it or any(file.contents.kinds.get(kind) for kind in BROKER_KINDS):
        return None
    first, last = file.contents.first_publish_ms, file.contents.last_publish_ms
    is_before = last is not None and reader.time_from_ms is not None and last < reader.time_from_ms
    is_behind = first is not None and reader.time_to_ms is not None and first >= reader.time_to_ms
    starts = tuple(file.entries_of(group).start for group in range(file.group_count))
    size = file.contents.payload_bytes
    return PlannedFile(
        ledger.ledger_id,
        path,
        ledger.entries,
        size,
        starts,
        ledger.next_ledger_id,
        is_wanted=not (is_before or is_behind),
        is_pure=set(file.contents.kinds) <= {MESSAGE},
        group_rows_max=max((file.rows_of(group) for group in range(file.group_count)), default=0),
        has_ids=file.has_message_ids,
        is_without_properties=file.contents.with_properties == 0,
    )
