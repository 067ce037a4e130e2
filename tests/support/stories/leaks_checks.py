"""Counts bytes on disks, nodes of metadata and files of the lake against a story's own history.

Everything is read as it lies there: entry logs, checkpoints and index runs chunk by chunk, metadata node by node, the
lake file by file. None of the product's listings is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from geminga.bookie.core import entry_log_format
from geminga.bookie.core.checkpoint_format import checked_lines, decode_checkpoint
from geminga.bookie.core.index_format import decode_run
from geminga.broker.schema.core.storage_format import decode_locator
from geminga.metadata.core.tree import MetadataTree
from geminga.model.position import Position
from geminga.sim import SimNode
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.managed_ledger import LedgerRecord, decode_cursor_info, decode_managed_ledger_info
from geminga.wire.managed_ledger.offload_context import decode_offload_context

if TYPE_CHECKING:
    from support.stories.leaks_history import Namespace, Topic
    from support.stories.leaks_story import LeaksStory

#: Nodes that a cluster has whatever is in it, with those above them.
ALWAYS: Final = (
    "/admin/clusters/standalone",
    "/admin/policies/public/default",
    "/admin/policies/pulsar/system",
    "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
    "/geminga/bookie-marks",
    "/geminga/installation",
    "/ledgers/available",
    "/ledgers/idgen",
)
#: Nodes that may be there: roots, one for each kind, and what was counted.
PERHAPS: Final = (
    "/counters/producer-name",
    "/geminga/lake-deletions",
    "/geminga/delayed-index",
    "/ledgers/00/0000",
    "/ledgers/underreplication/LAYOUT",
    "/ledgers/underreplication/auditorelection",
    "/ledgers/underreplication/checkallledgersctime",
    "/ledgers/underreplication/ledgers",
    "/ledgers/underreplication/locks",
    "/ledgers/underreplication/lostBookieRecoveryDelay",
    "/managed-ledgers",
    "/schemas",
    "/admin/local-policies",
    "/namespace",
    "/loadbalance",
)
#: Of the broker's own in a namespace: their topics, and the cursors that keep what is needed of them.
OWN_TOPICS: Final = {
    "__change_events": "pulsar.topic-policies",
    "__transaction_buffer_snapshot": "pulsar.transaction-snapshots",
}
COORDINATOR_LOG: Final = "/managed-ledgers/pulsar/system/persistent/__transaction_log_{}"
#: Of a log of transactions that are over: the open ledger, and what it has just left.
LOG_LEDGERS_MAX: Final = 3
#: Of a table: twice what is live, what may be superseded beside it in a story, and the rest of a ledger.
TABLE_ENTRIES_MAX: Final = 18
_NUMBER: Final = re.compile(rb"#(\d+) \0")


def payload(number: int) -> bytes:
    """Of the message with this number."""
    return b"#%d " % number + bytes(150)


class StoredBookie(NamedTuple):
    """What lies on one bookie's disk."""

    instance_id: str
    #: Ledgers that it knows: by its logs' tables of ledgers and its index, but for those that it noted as deleted.
    ledger_ids: frozenset[int]
    #: Numbers of messages in the entries of its logs, by place.
    numbers: dict[Position, int]
    #: Ledgers with entries in a log that is written on no more.
    in_old_logs: frozenset[int]


class Tree:
    """The metadata, node by node."""

    def __init__(self, tree: MetadataTree) -> None:
        self._tree = tree
        self.paths = set(self._below("/"))

    def _below(self, top: str) -> Iterator[str]:
        for name in self._tree.children(top):
            path = f"{top.rstrip('/')}/{name}"
            yield path
            yield from self._below(path)

    def value(self, path: str) -> bytes:
        node = self._tree.get(path, session=0)
        assert node is not None, f"no metadata node {path}"
        return node.value

    def of_session(self, session: int) -> set[str]:
        """Nodes that go with this session."""
        return {path for path in self.paths if (node := self._tree.get(path, session=session)) and node.stat.is_own}

    def lists(self) -> list[str]:
        """Nodes of managed ledgers, in order."""
        return sorted(
            one for one in self.paths if one.startswith("/managed-ledgers/") and one.count("/") == _LIST_DEPTH
        )

    def list_of(self, path: str) -> tuple[LedgerRecord, ...]:
        """Ledgers that a managed ledger names; none where it is not there."""
        return decode_managed_ledger_info(self.value(path)).ledgers if path in self.paths else ()

    def ledger(self, ledger_id: int) -> LedgerMetadata:
        return decode_ledger_metadata(self.value(ledger_path(ledger_id)), ledger_id)


class Expected:
    """What the history says of nodes: those that must be there, and those that may."""

    def __init__(self) -> None:
        self.always: set[str] = set()
        self.perhaps: set[str] = set()

    def must(self, path: str) -> None:
        self.always.update(_with_parents(path))

    def may(self, *paths: str) -> None:
        for path in paths:
            self.perhaps.update(_with_parents(path))

    def node(self, path: str, is_there: bool | None) -> None:
        if is_there is None:
            self.may(path)
        elif is_there:
            self.must(path)


def check_all(story: LeaksStory) -> None:
    """Raises AssertionError: what is there and must not be, or the other way round."""
    tree = Tree(story.cluster.server.tree)
    stored = {bookie.node.name: read_disk(bookie.node) for bookie in story.cluster.present()}
    expected = _expected_nodes(story, stored)
    # Such as what the names of producers are counted by.
    expected.may(*tree.of_session(story.cluster.store.session))
    expected.may(*_notes_of_named_files(tree))
    named = _named_ledgers(tree, expected)
    for ledger_id in named:
        expected.must(ledger_path(ledger_id))
    _compare("metadata nodes", tree.paths, expected.always, expected.always | expected.perhaps)
    for name, one in stored.items():
        left = sorted(one.ledger_ids - named)
        assert not left, f"{name} keeps ledgers that were deleted: {left}"
        left = sorted(one.in_old_logs - named)
        assert not left, f"{name} keeps entries of ledgers that were deleted: {left}"
    _check_lake(story, tree)
    for namespace in story.namespaces.values():
        for topic in namespace.topics.values():
            if topic.is_there:
                _check_kept(story, tree, stored, namespace, topic)
                _check_trimmed(tree, namespace, topic)
    _check_own_logs(tree)


def _compare(what: str, found: set[str], least: set[str], most: set[str]) -> None:
    left, missing = sorted(found - most), sorted(least - found)
    assert not left, f"{what} of what was deleted: {left}"
    assert not missing, f"{what} that are gone: {missing}"


# ---- metadata


def _expected_nodes(story: LeaksStory, stored: dict[str, StoredBookie]) -> Expected:
    expected = Expected()
    for path in ALWAYS:
        expected.must(path)
    expected.may(*PERHAPS)
    for name, one in stored.items():
        expected.must(f"/ledgers/cookies/{name}")
        expected.must(f"/geminga/bookie-marks/{one.instance_id}")
    for number in range(2):
        log = COORDINATOR_LOG.format(number)
        expected.may(f"{log}/transaction.subscription")
    for tenant, is_there in story.tenants.items():
        expected.node(f"/admin/policies/{tenant}", is_there)
    for namespace in story.namespaces.values():
        if namespace.is_there:
            _expect_namespace(expected, namespace)
    return expected


def _expect_namespace(expected: Expected, namespace: Namespace) -> None:
    expected.must(f"/admin/policies/{namespace.name}")
    if namespace.partitions:
        expected.must(f"/admin/partitioned-topics/{namespace.name}/persistent/parts")
    # Parents, also of what is gone: they go with the namespace.
    for root in ("/managed-ledgers", "/admin/partitioned-topics"):
        expected.may(f"{root}/{namespace.name}/persistent")
    expected.may(f"/schemas/{namespace.name}")
    for name, cursor in OWN_TOPICS.items():
        expected.may(f"/managed-ledgers/{namespace.name}/persistent/{name}/{cursor}")
        expected.may(f"/schemas/{namespace.name}/{name}")
    for topic in namespace.topics.values():
        if topic.is_there:
            _expect_topic(expected, topic)


def _expect_topic(expected: Expected, topic: Topic) -> None:
    path = f"/managed-ledgers/{topic.name.managed_ledger_name}"
    expected.must(path)
    expected.may(f"{path}/pulsar.dedup")
    for name, one in topic.subscriptions.items():
        expected.node(f"{path}/{name}", one.is_there)
        if one.is_there and one.has_transactions:
            expected.may(f"{path}-{name}__transaction_pending_ack/__pending_ack_state")
    expected.node(f"/schemas/{topic.name.namespace}/{topic.name.local_name}", topic.has_schema)


def _named_ledgers(tree: Tree, expected: Expected) -> set[int]:
    """By lists, cursors and locators of what is expected."""
    named: set[int] = set()
    for path in sorted(tree.paths & (expected.always | expected.perhaps)):
        value = tree.value(path)
        depth = path.count("/")
        if not value:
            continue
        if path.startswith("/managed-ledgers/") and depth == _LIST_DEPTH:
            named |= {record.ledger_id for record in tree.list_of(path) if not _is_in_lake_only(record)}
        elif path.startswith("/managed-ledgers/") and depth == _LIST_DEPTH + 1:
            named.add(decode_cursor_info(value).cursor_ledger_id)
        elif path.startswith("/schemas/"):
            named |= {entry.position.ledger_id for entry in decode_locator(value, path).index}
    return named - {-1}


def _notes_of_named_files(tree: Tree) -> Iterator[str]:
    """Of deletions that were cut off before the list lost the file, which a subscription keeps since: they go an hour
    later, which is longer than a story lasts."""
    for path in tree.lists():
        for record in tree.list_of(path):
            if record.offload_context:
                yield f"/geminga/lake-deletions/{decode_offload_context(record.offload_context).uid}"


#: Slashes of ``/managed-ledgers/TENANT/NAMESPACE/persistent/NAME``.
_LIST_DEPTH: Final = 5


def _is_in_lake_only(record: LedgerRecord) -> bool:
    return bool(record.offload_context) and decode_offload_context(record.offload_context).is_bookkeeper_deleted


def _with_parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


# ---- disks


def read_disk(node: SimNode) -> StoredBookie:
    """Of a bookie that is stopped."""
    disk = node.disk
    cookie = checked_lines(disk.contents("/data/ledgers/cookie"))
    assert cookie is not None
    instance_id = bytes.fromhex(cookie["instance-id"])
    checkpoint = decode_checkpoint(disk.contents("/data/ledgers/checkpoint"), instance_id)
    assert checkpoint is not None
    deleted = BitMap64.deserialize(checkpoint.deleted) if checkpoint.deleted else BitMap64()
    known: set[int] = set()
    for run_id in checkpoint.run_ids:
        decoded = decode_run(disk.contents(f"/data/ledgers/{run_id:010d}.index"), run_id, instance_id)
        assert decoded is not None
        run, states = decoded
        known.update(run.ledger_ids)
        known.update(state.ledger_id for state in states)
    logs = sorted(path for path in disk.paths() if path.startswith("/data/ledgers/") and path.endswith(".log"))
    in_checkpoint = {f"/data/ledgers/{log_id:010d}.log" for log_id, _ in checkpoint.logs}
    assert set(logs) == in_checkpoint, f"{node.name}: entry logs {set(logs) ^ in_checkpoint} are nobody's"
    numbers: dict[Position, int] = {}
    old: set[int] = set()
    for path in logs:
        found = dict(_numbers_of_log(disk.contents(path)))
        numbers.update({place: number for place, number in found.items() if number >= 0})
        if path != logs[-1]:
            old.update(place.ledger_id for place in found)
    alive = frozenset(ledger_id for ledger_id in known if ledger_id not in deleted)
    return StoredBookie(instance_id.hex(), alive, numbers, frozenset(old))


def _numbers_of_log(data: bytes) -> Iterator[tuple[Position, int]]:
    """Each entry's place and number, -1 where it is none of ours."""
    header = entry_log_format.decode_file_header(data)
    assert header is not None
    seed, offset = entry_log_format.log_seed(header[2], header[1]), entry_log_format.FILE_HEADER_BYTES
    view = memoryview(data)
    while (chunk := entry_log_format.decode_chunk(view, offset, seed)) is not None:
        offset = chunk.end
        if chunk.kind != entry_log_format.KIND_ENTRIES:
            continue
        ends = entry_log_format.chunk_entry_ends(chunk)
        for index in range(chunk.entry_count):
            place = Position(chunk.ledger_id, chunk.first_entry_id + index)
            yield place, _number_in(bytes(chunk.body[ends[index] : ends[index + 1]]))


def _number_in(data: bytes) -> int:
    found = _NUMBER.search(data)
    return -1 if found is None else int(found[1])


# ---- what must be kept, and what must not


def _check_kept(
    story: LeaksStory, tree: Tree, stored: dict[str, StoredBookie], namespace: Namespace, topic: Topic
) -> None:
    """Every message that a policy or a subscription keeps lies on its whole write set, or in the lake."""
    path = f"/managed-ledgers/{topic.name.managed_ledger_name}"
    records = {record.ledger_id: record for record in tree.list_of(path)}
    lake: dict[int, dict[int, int]] = {}
    for number, position in topic.promised(is_retained=namespace.is_retained).items():
        record = records.get(position.ledger_id)
        assert record is not None, f"{topic.name}: message {number} at {position} must be kept: its ledger is gone"
        if _is_in_lake_only(record):
            if record.ledger_id not in lake:
                lake[record.ledger_id] = _numbers_in_lake(story.cluster.lake.files, topic, record)
            found = lake[record.ledger_id].get(position.entry_id)
            assert found == number, f"{topic.name}: message {number} at {position} must be kept: the lake has {found}"
            continue
        for bookie in _write_set(tree.ledger(position.ledger_id), position.entry_id):
            has = stored[bookie].numbers.get(position) if bookie in stored else None
            assert has == number, f"{topic.name}: message {number} at {position} must be kept: {bookie} has {has}"


def _write_set(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    fragment = [one for one in metadata.fragments if one.first_entry_id <= entry_id][-1]
    size = metadata.ensemble_size
    return [fragment.ensemble[(entry_id + index) % size] for index in range(metadata.write_quorum)]


def _check_trimmed(tree: Tree, namespace: Namespace, topic: Topic) -> None:
    """No ledger is in the list that every subscription is done with, but for the newest."""
    marks = [one.done for one in topic.subscriptions.values() if one.is_there]
    is_asked = any(one.asked > one.done for one in topic.subscriptions.values() if one.is_there)
    if namespace.is_retained or is_asked or not marks:
        return
    records = tree.list_of(f"/managed-ledgers/{topic.name.managed_ledger_name}")
    left = [record.ledger_id for record in records[:-1] if record.ledger_id < min(marks).ledger_id]
    assert not left, f"{topic.name} keeps ledgers {left}, acknowledged up to {min(marks)}"


def _check_own_logs(tree: Tree) -> None:
    """What the broker keeps for itself does not grow with what was ever done."""
    for path in tree.lists():
        name = path.rpartition("/")[2]
        records = tree.list_of(path)
        if name in OWN_TOPICS:
            count = sum(record.entries for record in records)
            assert count <= TABLE_ENTRIES_MAX, f"{path} has {count} entries, most of them superseded"
        elif name.startswith("__transaction_log") or name.endswith("__transaction_pending_ack"):
            assert len(records) <= LOG_LEDGERS_MAX, f"{path} has {len(records)} ledgers, and nothing in them is needed"


def _check_lake(story: LeaksStory, tree: Tree) -> None:
    """The files of ledgers that a list names, and of each topic with one a manifest."""
    expected, manifests = {"_geminga/owner.json"}, set()
    for namespace in story.namespaces.values():
        for topic in namespace.topics.values():
            name = topic.name.managed_ledger_name
            for record in tree.list_of(f"/managed-ledgers/{name}"):
                if record.offload_context:
                    expected.add(_lake_file(topic, record))
            if topic.is_there:
                # Also where the last file has gone.
                manifests.add(f"{name}/_manifest/")
    found = set(story.cluster.lake.files)
    left = sorted(path for path in found - expected if not path.startswith(tuple(manifests)))
    assert not left, f"files in the lake of what was deleted: {left}"
    missing = sorted(expected - found - {"_geminga/owner.json"})
    assert not missing, f"files in the lake that are gone: {missing}"
    for directory in manifests:
        count = sum(path.startswith(directory) for path in found)
        assert count <= 1, f"{count} manifests in {directory}"


def _lake_file(topic: Topic, record: LedgerRecord) -> str:
    uid = decode_offload_context(record.offload_context).uid
    return f"{topic.name.managed_ledger_name}/ledger-{record.ledger_id:019d}-{uid}.parquet"


def _numbers_in_lake(files: dict[str, bytes], topic: Topic, record: LedgerRecord) -> dict[int, int]:
    """By entry id."""
    table = pq.read_table(pa.BufferReader(files[_lake_file(topic, record)]))
    found = {}
    for row in table.to_pylist():
        numbers = [_number_in(value) for value in row.values() if isinstance(value, bytes)]
        found[row["entry"]] = max(numbers, default=-1)
    return found
