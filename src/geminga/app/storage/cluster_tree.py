"""The metadata of a cluster, copied while they change, in an order by which nothing is ahead of what it speaks of.

Nodes of topics are copied with their ledgers (:mod:`.cluster_backup`); here is everything else, and what a topic's
nodes say of ledgers. Ephemeral nodes are those of processes: they are left out, as is what bookies keep of themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from geminga.app.storage.core.restore_marks import RESTORED_PATH, RESTORER_PATH
from geminga.broker.handlers.producer_names import PRODUCER_NAMES_PATH
from geminga.broker.resources.configuration_paths import NOTED_PATH
from geminga.broker.schema.core.storage_format import decode_locator
from geminga.managed_ledger.rules.attached import attached_ids
from geminga.managed_ledger.shared.metadata_io import ROOT as MANAGED_LEDGERS
from geminga.metadata.copying import WINDOW_NODES
from geminga.metadata.core.copying import MARKER_PATH, RESTORING_PATH
from geminga.metadata.counters import use_up
from geminga.metadata.ports import MetadataStore
from geminga.model.topic_name import COMPACTION_CURSOR, TRANSACTION_LOG_PREFIX
from geminga.wire.bookkeeper.bookie_registration import BOOKIE_MARKS_PATH
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT
from geminga.wire.managed_ledger import CursorInfoRecord, decode_cursor_info, decode_managed_ledger_info
from geminga.wire.managed_ledger.cursor_info import decode_position_info
from geminga.wire.managed_ledger.ledger_info import LedgerRecord, is_complete
from geminga.wire.pulsar.compacted import COMPACTED_LEDGER

T = TypeVar("T")

#: Where schemas say in which ledgers they are.
SCHEMAS: Final = "/schemas"
#: Not copied here: topics and ledgers come with their entries, the others are not the cluster's state.
LEFT_OUT: Final = frozenset(
    (
        *(MANAGED_LEDGERS, LEDGERS_ROOT, "/zookeeper", BOOKIE_MARKS_PATH),
        *(MARKER_PATH, RESTORING_PATH, RESTORED_PATH, RESTORER_PATH),
        # A backup has it all in one.
        NOTED_PATH,
    )
)
#: Name of the node below which topics are.
_PERSISTENT: Final = "persistent"
#: Of a cursor's property that names the ledger of a part of an index of delayed messages.
_BUCKET: Final = "#pulsar.internal.delayed.bucket"
#: Where coordinators of transactions have their logs.
_SYSTEM_TOPICS: Final = f"{MANAGED_LEDGERS}/pulsar/system/{_PERSISTENT}"


class TopicCursors(NamedTuple):
    """The nodes of a topic's cursors, by name."""

    values: dict[str, bytes]

    def ledger_ids(self) -> Iterator[int]:
        """Ledgers that they need. Raises CorruptionError."""
        for value in self.values.values():
            yield from _of_cursor(decode_cursor_info(value))

    @property
    def of_compaction(self) -> int:
        """The ledger of the cursor of compaction; -1: there is none. Raises CorruptionError."""
        value = self.values.get(COMPACTION_CURSOR)
        return -1 if value is None else decode_cursor_info(value).cursor_ledger_id


def _of_cursor(record: CursorInfoRecord) -> Iterator[int]:
    if record.cursor_ledger_id >= 0:
        yield record.cursor_ledger_id
    compacted = record.properties.get(COMPACTED_LEDGER)
    if compacted is not None and compacted >= 0:
        yield compacted
    for name, value in record.cursor_properties.items():
        if name.startswith(_BUCKET) and value.isascii() and value.isdigit():
            yield int(value)


def ledgers_of(value: bytes) -> Sequence[LedgerRecord]:
    """Those of a managed ledger whose entries are to be on bookies. Raises CorruptionError."""
    records = decode_managed_ledger_info(value).ledgers
    return [record for record in records if not record.offload_context or not is_complete(record.offload_context)]


def attached_of(value: bytes) -> Sequence[int]:
    """Ids of those that a managed ledger has beside its list: what was compacted of it. Raises CorruptionError."""
    return attached_ids(decode_managed_ledger_info(value).properties)


def compacted_in(entry: bytes) -> Sequence[int] | None:
    """What an entry of the ledger of a cursor of compaction says that was compacted; None: it says nothing by itself.

    Raises CorruptionError.
    """
    record = decode_position_info(entry)
    if record.segment is not None:
        return None
    found = record.properties.get(COMPACTED_LEDGER, -1)
    return [found] if found >= 0 else []


def offloaded_of(value: bytes) -> Sequence[LedgerRecord]:
    """Those whose entries are elsewhere: bookies may have them still. Raises CorruptionError."""
    records = decode_managed_ledger_info(value).ledgers
    return [record for record in records if record.offload_context and is_complete(record.offload_context)]


async def topic_paths(store: MetadataStore) -> list[str]:
    """Nodes of all managed ledgers of topics, also those with a cluster in their names. Raises MetadataError."""
    found: list[str] = []
    for tenant in await store.children(MANAGED_LEDGERS):
        for second in await store.children(f"{MANAGED_LEDGERS}/{tenant}"):
            place = f"{MANAGED_LEDGERS}/{tenant}/{second}"
            for third in await store.children(place):
                if third == _PERSISTENT:
                    below = [f"{place}/{third}"]
                else:
                    fourths = await store.children(f"{place}/{third}")
                    below = [f"{place}/{third}/{fourth}" for fourth in fourths if fourth == _PERSISTENT]
                for parent in below:
                    found += [f"{parent}/{name}" for name in await store.children(parent)]
    return found


async def transaction_logs(store: MetadataStore) -> dict[str, int]:
    """The newest ledger of each log of a coordinator of transactions, by its node. Raises MetadataError."""
    found: dict[str, int] = {}
    for name in await store.children(_SYSTEM_TOPICS):
        if name.startswith(TRANSACTION_LOG_PREFIX):
            node = await store.get(f"{_SYSTEM_TOPICS}/{name}")
            records = () if node is None else decode_managed_ledger_info(node.value).ledgers
            found[f"{_SYSTEM_TOPICS}/{name}"] = records[-1].ledger_id if records else -1
    return found


class TreeCopy:
    """Everything but topics and ledgers, copied to a store of our own."""

    __slots__ = ("_source", "_target", "schema_ledgers")

    def __init__(self, source: MetadataStore, target: MetadataStore) -> None:
        self._source = source
        self._target = target
        #: Ledgers that have schemas.
        self.schema_ledgers: set[int] = set()

    async def run(self) -> None:
        """Raises MetadataError, CorruptionError."""
        await self._children("")
        counter = await self._source.next_sequence(PRODUCER_NAMES_PATH)
        if counter:
            await use_up(self._target, PRODUCER_NAMES_PATH, counter)

    async def _children(self, path: str) -> None:
        names = await self._source.children(path or "/")
        paths = [f"{path}/{name}" for name in names]
        wanted = [one for one in paths if one not in LEFT_OUT]
        for start in range(0, len(wanted), WINDOW_NODES):
            window = wanted[start : start + WINDOW_NODES]
            there = await each(self._node, window)
            for one, is_there in zip(window, there, strict=True):
                if is_there:
                    await self._children(one)

    async def _node(self, path: str) -> bool:
        node = await self._source.get(path)
        if node is None or node.stat.is_ephemeral:
            return False
        await self._target.put(path, node.value, expected_version=None)
        if path.startswith(f"{SCHEMAS}/") and node.value:
            self.schema_ledgers.update(entry.position.ledger_id for entry in decode_locator(node.value, path).index)
        return True


async def each(call: Callable[[str], Awaitable[T]], paths: Sequence[str]) -> list[T]:
    """All at once; none is under way any more when this raises."""
    results = await asyncio.gather(*(call(path) for path in paths), return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found
