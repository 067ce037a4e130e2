"""Snapshots of a topic's delayed index in a ledger of its own, so that a restart does not read the backlog.

docs/formats/delayed-index.md. A snapshot only says what the entries say anyway: nothing is lost with it, and errors
are logged and leave the topic without one until the next write. Data before index: only what was read, hence stored,
is indexed. A node names the ledger, after its records are on stable storage; a ledger being written is named beside it
first, so that whoever opens the topic after a crash can delete it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.broker.core.delayed import crash_points
from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore, Node
from geminga.model.errors import BadVersionError, CorruptionError, GemingaError, NoSuchLedgerError, StorageError
from geminga.runtime import Clock, Part, again, crash_point, get_logger, spawn

if TYPE_CHECKING:
    from geminga.managed_ledger import ManagedLedgerConfig

#: Nodes are below, one per managed ledger that has a snapshot.
ROOT: Final = "/geminga/delayed-index"
#: Seconds after an entry was added until what was added since the last write is written.
SAVE_INTERVAL_S: Final = 30.0
#: So few entries are not worth a write: they are read again.
SAVE_ENTRIES_MIN: Final = 1000
#: Records read with one call.
READ_RECORDS: Final = 4
#: A snapshot is written anew when it holds this many times what waits, and a write's worth more.
GARBAGE_FACTOR: Final = 2
_NONE: Final = -1
_log = get_logger(__name__)


class SnapshotNode(NamedTuple):
    """The node's value: ledger ids, -1 for none."""

    ledger_id: int
    #: A ledger being written.
    next_id: int

    def encode(self) -> bytes:
        """Two decimal numbers."""
        return f"{self.ledger_id} {self.next_id}".encode()

    @classmethod
    def decode(cls, value: bytes) -> SnapshotNode:
        """The inverse; CorruptionError."""
        try:
            ledger_id, next_id = value.split()
            return cls(int(ledger_id), int(next_id))
        except ValueError as error:
            raise CorruptionError(f"node of a delayed index: {value[:40]!r}") from error


class DelayedSnapshots:
    """See the module."""

    __slots__ = (
        "_bookkeeper",
        "_clock",
        "_config",
        "_delays",
        "_handle",
        "_is_closed",
        "_metadata",
        "_node",
        "_part",
        "_path",
        "_saving",
        "_timer",
        "_value",
        "_written",
        "name",
    )

    def __init__(
        self,
        name: str,
        delays: TopicDelays,
        *,
        clock: Clock,
        metadata: MetadataStore,
        bookkeeper: BookKeeper,
        config: ManagedLedgerConfig,
        part: Part | None = None,
    ) -> None:
        """``name`` is that of the managed ledger; ``part`` is closed if this breaks."""
        self.name = name
        self._delays = delays
        self._clock = clock
        self._metadata = metadata
        self._bookkeeper = bookkeeper
        self._config = config
        self._path = f"{ROOT}/{name}"
        self._node = SnapshotNode(_NONE, _NONE)
        #: What the node has, intelligible or not; None: there is none.
        self._value: bytes | None = None
        #: The ledger that records are added to; None: the next write makes one.
        self._handle: LedgerHandle | None = None
        #: Entries in the records of that ledger.
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Future[None] | None = None
        self._is_closed = False
        self._part = part
        delays.on_fresh = self._on_fresh

    @property
    def exists(self) -> bool:
        """Whether anything of it is stored."""
        return bool(self._value)

    @property
    def ledger_id(self) -> int:
        """The ledger of the last snapshot; -1: there is none."""
        return self._node.ledger_id

    async def load(self, value: bytes, *, is_used: bool) -> None:
        """Take what the snapshot says into the index. Never raises for a bad snapshot.

        ``value``: of the node (:func:`stored_value`). ``is_used`` False: messages do not wait, and it is enough to know
        that there is one.
        """
        self._value = value
        try:
            self._node = SnapshotNode.decode(value)
            await self._drop_unfinished()
            if is_used:
                await self._load_ledger()
        except StorageError as error:
            _not_read(self.name, error)

    async def close(self) -> None:
        """Write what is worth it and let go."""
        self._is_closed = True
        self._stop_timer()
        self._delays.on_fresh = None
        if self._saving is not None:
            await asyncio.shield(self._saving)
        await self._save(is_last=True)
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                await handle.close()
            except GemingaError as error:
                _log.warning("%s: ledger %d of the delayed index is not closed: %s", self.name, handle.ledger_id, error)

    def stop(self) -> None:
        """The index is not to be trusted: nothing more is written."""
        self._is_closed = True
        self._stop_timer()
        self._delays.on_fresh = None

    async def delete(self) -> None:
        """The topic is deleted, and the snapshot with it."""
        self._is_closed = True
        self._stop_timer()
        self._delays.on_fresh = None
        if self._saving is not None:
            await asyncio.shield(self._saving)
        await self._drop()

    # ---- write

    def _on_fresh(self, is_much: bool) -> None:
        if self._is_closed or self._saving is not None:
            return
        if is_much:
            self._start_saving()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_INTERVAL_S, self._start_saving)

    def _start_saving(self) -> None:
        self._stop_timer()
        if self._saving is None and not self._is_closed:
            self._saving = asyncio.get_running_loop().create_future()
            spawn(self._save_now(), name=f"save delayed index of {self.name}", part=self._part)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _save_now(self) -> None:
        try:
            await self._save(is_last=False)
        finally:
            saving, self._saving = self._saving, None
            if saving is not None:
                saving.set_result(None)
            if (self._delays.fresh_count or self._delays.is_unsaved) and not self._is_closed:
                self._on_fresh(is_much=False)

    async def _save(self, *, is_last: bool) -> None:
        """One write: nothing, what is fresh, or everything anew."""
        delays = self._delays
        delays.trim_fresh(self._clock.wall_ms())
        try:
            if not len(delays):
                await self._drop()
            elif delays.fresh_count < min(SAVE_ENTRIES_MIN, delays.fresh_max) and not delays.is_unsaved:
                return
            elif delays.is_unsaved or self._handle is None or self._is_mostly_garbage:
                await self._write_anew()
            else:
                count = delays.fresh_count
                for record in delays.take_fresh(self._clock.wall_ms()):
                    await _append(self._handle, record)
                self._written += count
                crash_point(crash_points.ADDED)
        except StorageError as error:
            # What was taken is in no record now; the next write begins anew and has everything. Who lost the topic has
            # none.
            self._handle = None
            self._delays.is_unsaved = not isinstance(error, BadVersionError)
            _log.warning("%s: the delayed index is not saved%s: %s", self.name, " at close" * is_last, error)

    @property
    def _is_mostly_garbage(self) -> bool:
        return self._written > GARBAGE_FACTOR * len(self._delays) + self._delays.fresh_max

    async def _write_anew(self) -> None:
        """Everything that waits into a new ledger, then its name into the node, then the old one goes."""
        delays = self._delays
        config = self._config
        self._handle = None
        # Of a write that failed: nobody would know of it when the node names another.
        await self._drop_unfinished()
        handle = await self._bookkeeper.create_ledger(
            ensemble_size=config.ensemble_size,
            write_quorum=config.write_quorum,
            ack_quorum=config.ack_quorum,
            custom_metadata={"application": b"geminga", "component": b"delayed-index", "topic": self.name.encode()},
        )
        crash_point(crash_points.LEDGER_CREATED)
        old = self._node
        try:
            await self._write_node(SnapshotNode(old.ledger_id, handle.ledger_id))
        except BadVersionError:
            await self._delete_ledger(handle.ledger_id)
            raise
        crash_point(crash_points.NEXT_NAMED)
        count = len(delays)
        delays.drop_fresh()
        # What is missing from here on is so because of what comes meanwhile, or of a failure.
        delays.is_unsaved = False
        # While a record is written others may change the index; records made before and after stay true.
        for record in delays.records():
            await _append(handle, record)
        crash_point(crash_points.RECORDS_WRITTEN)
        await self._write_node(SnapshotNode(handle.ledger_id, _NONE))
        crash_point(crash_points.NAMED)
        self._handle, self._written = handle, count
        await self._delete_ledger(old.ledger_id)
        crash_point(crash_points.OLD_DELETED)

    async def _drop(self) -> None:
        """Nothing waits: no snapshot is needed."""
        self._handle, self._written = None, 0
        self._delays.is_unsaved = False
        if not self.exists:
            return
        node = self._node
        found = await self._read_own()
        if found is not None:
            await cas.remove_read(self._metadata, self._path, found)
        self._node, self._value = SnapshotNode(_NONE, _NONE), None
        crash_point(crash_points.DROPPED)
        await self._delete_ledger(node.ledger_id)
        await self._delete_ledger(node.next_id)

    # ---- read

    async def _drop_unfinished(self) -> None:
        next_id = self._node.next_id
        if next_id != _NONE:
            await self._read_own()
            await self._delete_ledger(next_id)
            await self._write_node(SnapshotNode(self._node.ledger_id, _NONE))

    async def _read_own(self) -> Node | None:
        """The node as this broker knows it; None: it is gone. BadVersionError: another broker wrote it."""
        found = await self._metadata.get(self._path)
        if found is not None and found.value != self._value:
            raise BadVersionError(f"{self._path}: another broker has the topic now")
        return found

    async def _load_ledger(self) -> None:
        ledger_id = self._node.ledger_id
        if ledger_id == _NONE:
            return
        try:
            # With recovery, which also keeps a broker that lost the topic from adding to it.
            handle = await self._bookkeeper.open_ledger(ledger_id, recover=True)
        except NoSuchLedgerError:
            return
        last = handle.last_add_confirmed
        for first in range(0, last + 1, READ_RECORDS):
            for record in await handle.read_entries(first, min(last, first + READ_RECORDS - 1)):
                self._delays.load(record, self._clock.wall_ms())
                # A record at a time, so that others go on meanwhile.
                await _give_way()

    async def _write_node(self, node: SnapshotNode) -> None:
        before, after = self._value, node.encode()

        def change(found: bytes | None) -> bytes:
            if found and found not in (before, after):
                raise BadVersionError(f"{self._path}: another broker has the topic now")
            return after

        await cas.update(self._metadata, self._path, change)
        self._node, self._value = node, after

    async def _delete_ledger(self, ledger_id: int) -> None:
        if ledger_id == _NONE:
            return
        try:
            await self._bookkeeper.delete_ledger(ledger_id)
        except StorageError as error:
            _log.warning("%s: ledger %d of the delayed index is not deleted: %s", self.name, ledger_id, error)


async def stored_value(metadata: MetadataStore, name: str) -> bytes:
    """What the node of a managed ledger's snapshot has; empty: there is none. One that can not be read is none."""
    try:
        found = await metadata.get(f"{ROOT}/{name}")
    except StorageError as error:
        _not_read(name, error)
        return b""
    return b"" if found is None else found.value


def _not_read(name: str, error: StorageError) -> None:
    _log.warning("%s: the delayed index is read from the log, its snapshot can not be: %s", name, error)


async def named_ledgers(metadata: MetadataStore) -> set[int]:
    """Ids that any snapshot's node names; -1 may be among them. Raises CorruptionError, MetadataError."""
    found: set[int] = set()
    paths = [ROOT]
    while paths:
        path = paths.pop()
        node = await metadata.get(path)
        if node is not None and node.value:
            found.update(SnapshotNode.decode(node.value))
        paths.extend(f"{path}/{name}" for name in await metadata.children(path))
    return found


async def _give_way() -> None:
    """Return at the loop's next turn."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


async def _append(handle: LedgerHandle, record: bytes) -> None:
    """Add a record; on stable storage on return."""
    written: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

    def done(_first: int, _count: int, error: StorageError | None) -> None:
        if not written.done():
            written.set_result(error)

    handle.append([record], done)
    error = await written
    if error is not None:
        raise again(error)  # the error's frames have the future
