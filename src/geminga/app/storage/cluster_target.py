"""Restores a backup of a cluster to another one: ledgers onto its bookies, nodes into its metadata store.

``docs/formats/backup.md``, Restoring to a cluster, has the order and what each step leaves to the next attempt. What is
restored comes through two ports, a tree and the entries of a segment; who reads a directory is :mod:`.cluster_restore`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol

from geminga.app.storage.cluster_tree import each
from geminga.app.storage.core.ledger_segments import HEADER_BYTES, LedgerSegment, consumed
from geminga.app.storage.core.restore_marks import (
    ADDED,
    RESTORED_PATH,
    RESTORER_PATH,
    Found,
    RestoredSizes,
    goes_on,
    is_done,
)
from geminga.app.storage.ledger_writing import append_all, custom_metadata_of
from geminga.app.storage.pace import Pace
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.installation import INSTALLATION_PATH
from geminga.bookkeeper.ledger_ids import keep_ids_above, next_ledger_id
from geminga.metadata import cas
from geminga.metadata.copying import MetadataCopy, NodeSource, scan
from geminga.metadata.core.copying import RESTORING_PATH, Marker, decode_marker
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent
from geminga.model.errors import (
    BadVersionError,
    DataDirectoryError,
    MetadataError,
    NoSuchLedgerError,
    UnknownOutcomeError,
)
from geminga.runtime import crash_point, get_logger, wait_ms
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata

#: Ledgers that are written at once: each has one part of a segment in memory.
LEDGERS_AT_ONCE: Final = 16
#: Nodes of ledgers that are looked at once more at the same time.
_LOOKS_AT_ONCE: Final = 500
#: How long the session of a command that was killed is waited for, between two looks.
RESTORER_WAIT_S: Final = 60.0
_LOOK_AGAIN_MS: Final = 250

BEGUN: Final = "restore.begun"
IDS_RAISED: Final = "restore.ids_raised"
LEDGER_DELETED: Final = "restore.ledger_deleted"
LEDGER_WRITTEN: Final = "restore.ledger_written"
LEDGERS_WRITTEN: Final = "restore.ledgers_written"
NODES_WRITTEN: Final = "restore.nodes_written"
NOTED: Final = "restore.noted"
ENDED: Final = "restore.ended"
#: Crash points, in order.
POINTS: Final = (
    *(BEGUN, IDS_RAISED, LEDGER_DELETED, LEDGER_WRITTEN),
    *(LEDGERS_WRITTEN, NODES_WRITTEN, NOTED, ENDED),
)

_log = get_logger(__name__)


class Entries(Protocol):
    """The entries of a segment."""

    def __call__(self, segment: LedgerSegment) -> AsyncGenerator[Sequence[bytes], None]:
        """Some at a time, in order, one at least."""
        ...


class BackupContents(NamedTuple):
    """What a backup has."""

    backup_id: str
    #: The directory, for people.
    source: str
    #: All nodes but those of ledgers.
    nodes: NodeSource
    ledgers: Mapping[int, LedgerMetadata]
    segments: Mapping[int, Sequence[LedgerSegment]]
    #: A number that no id of a ledger in it reaches.
    next_ledger_id: int
    #: Value of the node that names whose ledgers they are; None: there is none.
    installation: bytes | None
    entries: Entries


class TargetCluster(NamedTuple):
    """A cluster."""

    #: Its store, for people.
    name: str
    metadata: MetadataStore
    bookkeeper: BookKeeper
    #: Raises MetadataError for what its store can not keep.
    check: Callable[[str, bytes], None]


class RestoreProgress:
    """How far it is."""

    __slots__ = ("bytes_all", "bytes_done", "ledgers_all", "ledgers_done", "ledgers_kept", "nodes_all", "nodes_done")

    def __init__(self) -> None:
        self.ledgers_all = self.ledgers_done = self.ledgers_kept = 0
        #: Of files of entries: those of ledgers that were there before are done.
        self.bytes_all = self.bytes_done = 0
        self.nodes_all = self.nodes_done = 0

    def document(self) -> dict[str, int]:
        """As JSON tells it."""
        return {
            "ledgers": self.ledgers_all,
            "ledgersDone": self.ledgers_done,
            "ledgersKept": self.ledgers_kept,
            "bytes": self.bytes_all,
            "bytesDone": self.bytes_done,
            "nodes": self.nodes_all,
            "nodesDone": self.nodes_done,
        }


class Restored(NamedTuple):
    """What it came to."""

    nodes: int
    #: SHA-256 over the paths and values of all nodes but the ledgers'.
    digest: str
    was_resumed: bool
    #: Whether an earlier command had done all of it: nothing was done but to say so.
    was_done: bool


class ClusterTarget:
    """One attempt to restore a backup."""

    def __init__(
        self,
        contents: BackupContents,
        target: TargetCluster,
        sizes: RestoredSizes,
        pace: Pace,
        progress: RestoreProgress,
    ) -> None:
        self._contents = contents
        self._name, self._metadata, self._bookkeeper, self._check = target
        self._sizes = sizes
        self._pace = pace
        self._progress = progress
        self._marker = Marker(contents.backup_id, contents.source)
        self._pending: list[int] = []
        self._is_resumed = False

    async def restore(self) -> Restored:
        """All of it. Raises DataDirectoryError where it is refused, StorageError: the same call goes on then."""
        if is_done(await self._look(), self._marker.copy_id):
            return Restored(0, "", was_resumed=False, was_done=True)
        found = await scan(self._contents.nodes, self._name, self._check)
        self._count_bookies()
        working = asyncio.ensure_future(self._in_turn(found.nodes))
        has_expired = False

        def on_session(event: SessionEvent) -> None:
            nonlocal has_expired
            if event is SessionEvent.EXPIRED:
                has_expired = True
                working.cancel()

        forget = self._metadata.on_session_event(on_session)
        try:
            return await working
        except asyncio.CancelledError:
            if not has_expired:
                raise
            raise MetadataError(
                f"the session with {self._name} expired, so that another command may restore there: the same command "
                "goes on with what is missing"
            ) from None
        finally:
            forget()
            working.cancel()

    # ---- before anything is written

    async def _look(self) -> Found:
        store = self._metadata
        await store.sync()
        marks = [await self._mark(path) for path in (RESTORING_PATH, RESTORED_PATH)]
        if any(marks):
            found = Found((), False, 0, *marks)
        else:
            names = [f"/{name}" for name in await store.children("/")]
            names += [f"/geminga/{name}" for name in await store.children("/geminga")]
            has_ledgers = bool(await self._bookkeeper.ledger_ids())
            found = Found(names, has_ledgers, await next_ledger_id(store))
        if not is_done(found, self._marker.copy_id):
            self._is_resumed = goes_on(found, self._marker.copy_id, self._name)
        return found

    async def _mark(self, path: str) -> Marker | None:
        node = await self._metadata.get(path)
        return None if node is None else decode_marker(node.value, self._name, path)

    def _count_bookies(self) -> None:
        wanted = max((self._sizes.of(one)[0] for one in self._contents.ledgers.values()), default=1)
        there = self._bookkeeper.available_count()
        if there < wanted:
            raise DataDirectoryError(
                f"ledgers of the backup are to be on {wanted} bookies, and {self._name} has {there} that take entries: "
                "start more of them, or name fewer with --set managedLedgerDefaultEnsembleSize=, "
                "managedLedgerDefaultWriteQuorum= and managedLedgerDefaultAckQuorum="
            )

    async def _in_turn(self, nodes: int) -> Restored:
        await self._take_turn()
        return await self._work(nodes)

    async def _take_turn(self) -> None:
        """No other command restores there as long as this one's session lives."""
        waited_ms = 0
        while True:
            try:
                await self._metadata.put(RESTORER_PATH, b"", expected_version=MUST_NOT_EXIST, ephemeral=True)
                break
            except (BadVersionError, UnknownOutcomeError):
                found = await self._metadata.get(RESTORER_PATH)
                if found is not None and found.stat.is_own:
                    break
                if waited_ms >= RESTORER_WAIT_S * 1000:
                    raise DataDirectoryError(f"another command restores a backup to {self._name}") from None
            if not waited_ms:
                _log.warning("another command restores to %s, or was killed: waiting for its session", self._name)
            await wait_ms(_LOOK_AGAIN_MS)
            waited_ms += _LOOK_AGAIN_MS
        # What was there may have changed before it was this one's turn.
        if is_done(await self._look(), self._marker.copy_id):
            raise DataDirectoryError(f"another command restored this backup to {self._name} meanwhile")
        if not await cas.put_if_absent(self._metadata, RESTORING_PATH, self._marker.encode()):
            self._is_resumed = True
        crash_point(BEGUN)

    # ---- from here on every step is made again by who goes on

    async def _work(self, nodes: int) -> Restored:
        contents, store, progress = self._contents, self._metadata, self._progress
        await keep_ids_above(store, contents.next_ledger_id - 1)
        if contents.installation is not None:
            installation = contents.installation
            await cas.update(store, INSTALLATION_PATH, lambda found: None if found == installation else installation)
        crash_point(IDS_RAISED)
        progress.ledgers_all = len(contents.ledgers)
        progress.bytes_all = sum(one.file.size_bytes for all_of in contents.segments.values() for one in all_of)
        # Those of the smallest ids are the last of the list, and are taken first.
        self._pending = sorted(contents.ledgers, reverse=True)
        await each(self._take_ledgers, [str(number) for number in range(LEDGERS_AT_ONCE)])
        crash_point(LEDGERS_WRITTEN)
        digest = await self._copy_nodes(nodes)
        crash_point(NODES_WRITTEN)
        await self._look_at_ledgers()
        await cas.update(store, RESTORED_PATH, lambda _: self._marker.encode())
        crash_point(NOTED)
        await cas.remove(store, RESTORING_PATH)
        crash_point(ENDED)
        return Restored(nodes, digest, was_resumed=self._is_resumed, was_done=False)

    async def _take_ledgers(self, _: str) -> None:
        while self._pending:
            ledger_id = self._pending.pop()
            try:
                await self._ledger(ledger_id)
            except BaseException:
                self._pending.clear()
                raise

    async def _ledger(self, ledger_id: int) -> None:
        wanted, progress = self._contents.ledgers[ledger_id], self._progress
        segments = self._contents.segments.get(ledger_id, ())
        if self._is_resumed and await self._is_whole(ledger_id):
            progress.ledgers_kept += 1
            progress.bytes_done += sum(one.file.size_bytes for one in segments)
        else:
            if self._is_resumed:
                await self._bookkeeper.delete_ledger(ledger_id)
                crash_point(LEDGER_DELETED)
            await self._write_ledger(ledger_id, wanted, segments)
        progress.ledgers_done += 1

    async def _is_whole(self, ledger_id: int) -> bool:
        try:
            found = (await self._bookkeeper.read_ledger(ledger_id)).metadata
        except NoSuchLedgerError:
            return False
        return found.is_closed and found.last_entry_id == self._contents.ledgers[ledger_id].last_entry_id

    async def _write_ledger(self, ledger_id: int, wanted: LedgerMetadata, segments: Sequence[LedgerSegment]) -> None:
        ensemble, write, ack = self._sizes.of(wanted)
        handle = await self._bookkeeper.readmit_ledger(
            ledger_id,
            ensemble_size=ensemble,
            write_quorum=write,
            ack_quorum=ack,
            custom_metadata=custom_metadata_of(wanted),
            password=wanted.password,
        )
        for segment in segments:
            async with aclosing(self._contents.entries(segment)) as parts:
                async for payloads in parts:
                    await append_all(handle, payloads)
                    size = consumed(payloads)
                    self._progress.bytes_done += size
                    await self._pace.copied(size)
            self._progress.bytes_done += HEADER_BYTES
        await handle.close()
        crash_point(LEDGER_WRITTEN)

    async def _copy_nodes(self, nodes: int) -> str:
        progress = self._progress
        progress.nodes_all = nodes

        def on_progress(_: str, done: int, __: int) -> None:
            progress.nodes_done = done

        copy = MetadataCopy(
            *(self._contents.nodes, self._metadata, self._marker, self._name),
            of=nodes,
            added=(*ADDED, INSTALLATION_PATH),
            on_progress=on_progress,
        )
        copy.is_resumed = self._is_resumed
        await copy.write()
        await copy.count()
        return (await copy.compare()).digest

    async def _look_at_ledgers(self) -> None:
        ids = sorted(self._contents.ledgers)
        for start in range(0, len(ids), _LOOKS_AT_ONCE):
            some = ids[start : start + _LOOKS_AT_ONCE]
            whole = await each(self._whole_one, [str(one) for one in some])
            if not all(whole):
                ledger_id = some[whole.index(False)]
                raise MetadataError(
                    f"ledger {ledger_id} of {self._name} is not as it was restored: does somebody else write there? "
                    "The same command restores it again"
                )

    async def _whole_one(self, ledger_id: str) -> bool:
        return await self._is_whole(int(ledger_id))
