"""Ledgers of one topic go to the lake: written, read back, registered, and only later deleted on the bookies.

The steps and what a crash between two of them leaves are in docs/formats/lake.md. One step after the other, one ledger
after the other; nothing is held while a file is written but its ledger's place in the list, which is looked up anew
before each change. Loaded with the first topic that has anything to do with the lake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from geminga.lake.core.names import ledger_file, parse_ledger_file, topic_directory
from geminga.lake.service import LakeFile, Root, StopSignal
from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.offload import lake_files, manifests
from geminga.managed_ledger.offload.restoring import RestoreStatus, bring_back
from geminga.managed_ledger.rules.offload import OffloadPolicy, before, can_offload, due, leaves_bookies, record_of
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.ports import Ledger
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import ConflictError, LedgerClosedError, LedgerFencedError, NoSuchLedgerError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.runtime import Rng, again, crash_point, get_logger, spawn
from geminga.wire.managed_ledger.offload_context import OffloadRecord, encode_offload_context

if TYPE_CHECKING:
    from geminga.lake.parquet import LedgerFacts, SchemaFacts

#: Bytes, and entries, that are asked of the bookies at a time.
READ_BYTES: Final = 1024 * 1024
READ_ENTRIES: Final = 1000
#: Of the definitions of schemas in one file.
SCHEMAS_BYTES_MAX: Final = 16 * 1024 * 1024
#: Ledgers that go between two manifests.
MANIFEST_EVERY: Final = 16
#: Of a ledger on bookies whose metadata change meanwhile, as where a bookie is replaced.
DELETE_ATTEMPTS_MAX: Final = 8
#: Ledgers in a row that can not be restored, or leave the bookies, until the others are left for later.
FAILURES_MAX: Final = 8
_UID_BYTES: Final = 16
_log = get_logger(__name__)

#: Which of these entries belong to transactions that were aborted: the ledger's id, the first entry's, the entries.
FindAborted = Callable[[int, int, Sequence[bytes]], frozenset[int]]
#: A version of the topic's schema; None: it is not known.
FindSchema = Callable[[bytes], Awaitable["SchemaFacts | None"]]


class OffloadedLog(Protocol):
    """A managed ledger, as far as it concerns this."""

    name: str
    tenure: Tenure
    stored: StoredList
    reader: LogReader

    @property
    def persistence(self) -> Persistence:
        """Of new ledgers."""
        ...


class OffloadStatus(NamedTuple):
    """How the last command went, as Pulsar tells it."""

    status: str = "NOT_RUN"
    last_error: str = ""
    #: The first message that was not offloaded.
    first_unoffloaded: Position = EARLIEST


class Offloading:
    """See the module."""

    def __init__(
        self,
        log: OffloadedLog,
        services: StorageServices,
        rng: Rng,
        *,
        find_aborted: FindAborted | None = None,
        find_schema: FindSchema | None = None,
    ) -> None:
        self._log = log
        self._services = services
        self._rng = rng
        self._directory = topic_directory(log.name)
        self._find_aborted = find_aborted
        self._find_schema = find_schema
        self._stop = StopSignal()
        #: One piece of work at a time.
        self._busy = asyncio.Lock()
        self._is_tidy = False
        self.policy = OffloadPolicy()
        #: Awaited before the bookies' copy of anything goes; may raise StorageError: then it stays.
        self.before_leaving: Callable[[], Awaitable[None]] | None = None
        self.status = OffloadStatus()
        self.restoring = RestoreStatus()
        #: Of the last ledger that went, and of the last that failed; ms since the epoch, 0: never. As Pulsar tells it.
        self.last_ledger_id = 0
        self.last_success_ms = 0
        self.last_failure_ms = 0
        self.last_error = ""

    # ---- what is asked for

    def stop(self) -> None:
        """The topic is unloaded or deleted: what is under way ends soon, without having changed anything more."""
        self._stop.set()

    def look_later(self) -> None:
        """Do what is due, in the background, unless something is being done."""
        if self._busy.locked() or self._stop.is_set or not self._has_work():
            return
        spawn(self._look_quietly(), name=f"offload-{self._log.name}", part=self._log.tenure.part)

    def _has_work(self) -> bool:
        log, now_ms = self._log, self._services.clock.wall_ms()
        if not self._is_tidy or due(log.stored.ledgers.infos, log.stored.extent.readable, self.policy, now_ms):
            return True
        records = (record_of(info) for info in log.stored.ledgers.infos if info.offload_context)
        return any(leaves_bookies(record, self.policy, now_ms) for record in records if record is not None)

    async def _look_quietly(self) -> None:
        try:
            await self.look()
        except LedgerClosedError:
            pass
        except StorageError as error:
            self._failed(error)

    async def look(self) -> None:
        """What thresholds and the deletion lag want now, and what a crash left. Raises StorageError."""
        async with self._busy:
            untidy: StorageError | None = None
            if not self._is_tidy:
                try:
                    await self._tidy()
                except (LedgerClosedError, LedgerFencedError):
                    raise
                except StorageError as error:
                    untidy = again(error)  # a root that is away: what goes to another one does not wait for it
            log = self._log
            failure = await self._offload_all(
                due(log.stored.ledgers.infos, log.stored.extent.readable, self.policy, self._services.clock.wall_ms())
            )
            await self._leave_bookies()
            failure = failure or untidy
            if failure is not None:
                raise again(failure)

    async def _offload_all(self, ledger_ids: Sequence[int]) -> StorageError | None:
        """One after the other; the last failure: the others are no worse off.

        Raises LedgerClosedError, LedgerFencedError.

        A manifest has all of a topic's ledgers, so it is not written for each.
        """
        failure: StorageError | None = None
        for number, ledger_id in enumerate(ledger_ids, 1):
            try:
                await self._offload(ledger_id)
                if not number % MANIFEST_EVERY or number == len(ledger_ids):
                    await self.write_manifests()
                    crash_point(points.OFFLOAD_MANIFEST_WRITTEN)
            except (LedgerClosedError, LedgerFencedError):
                raise
            except StorageError as error:
                failure = again(error)
        if failure is not None:
            try:
                await self.write_manifests()
            except (LedgerClosedError, LedgerFencedError):
                raise
            except StorageError as error:
                failure = again(error)
        return failure

    def start(self, ledger_id: int) -> None:
        """Offload all ledgers before one, in the background. Raises ConflictError, StorageError."""
        if self.status.status == "RUNNING":
            raise ConflictError("Offload already in progress")
        if not self.policy.driver:
            raise StorageError("no offload driver is set for this topic")
        self.status = OffloadStatus("RUNNING")
        spawn(self._run(ledger_id), name=f"offload-{self._log.name}", part=self._log.tenure.part)

    async def _run(self, ledger_id: int) -> None:
        try:
            first = await self.offload_before(ledger_id)
        except StorageError as error:
            self._failed(error)
            self.status = OffloadStatus("ERROR", str(error))
            return
        self.status = OffloadStatus("SUCCESS", "", first)

    async def offload_before(self, ledger_id: int) -> Position:
        """Offload all ledgers before one that can be; the first message that is not offloaded. Raises StorageError."""
        async with self._busy:
            failure = await self._offload_all(
                before(self._log.stored.ledgers.infos, self._log.stored.extent.readable, ledger_id)
            )
            if failure is not None:
                raise again(failure)
        for info in self._log.stored.ledgers.infos:
            record = record_of(info)
            if record is None or not record.is_complete:
                return Position(info.ledger_id, 0)
        return Position(ledger_id, 0)

    def _failed(self, error: StorageError) -> None:
        self.last_failure_ms = self._services.clock.wall_ms()
        self.last_error = str(error)
        _log.warning("%s: not offloaded now, it is tried again: %s", self._log.name, error)

    def start_restore(self) -> None:
        """:meth:`restore` in the background. Raises ConflictError."""
        self._check_restorable()
        if self.restoring.status == "RUNNING":
            raise ConflictError("Restore already in progress")
        self.restoring = RestoreStatus("RUNNING")
        spawn(self._run_restore(), name=f"restore-{self._log.name}", part=self._log.tenure.part)

    async def _run_restore(self) -> None:
        try:
            await self.restore()
        except StorageError as error:
            _log.warning("%s: restore: %s", self._log.name, error)
            self.restoring = self.restoring._replace(status="ERROR", last_error=str(error))
            return
        self.restoring = self.restoring._replace(status="SUCCESS")

    def _check_restorable(self) -> None:
        if self.policy.driver and (self.policy.threshold_bytes >= 0 or self.policy.threshold_ms >= 0):
            raise ConflictError("The offload policies would send the ledgers away again: remove their thresholds first")

    async def restore(self) -> int:
        """Ledgers leave the lake, oldest first, each once bookies have all of it; how many did.

        Raises ConflictError, StorageError: one failed, the others are restored all the same, and a later call goes on.
        """
        self._check_restorable()
        count = 0

        async def leave_lake(info: LedgerInfo, record: OffloadRecord) -> None:
            nonlocal count
            if not record.is_complete:
                return
            if record.is_bookkeeper_deleted:
                await self._bring_back(info, record)
            else:
                await self._read_whole(info)
            await self._unregister(info, record)
            crash_point(points.RESTORE_LEFT_LAKE)
            count += 1
            self.restoring = self.restoring._replace(restored=count)

        async with self._busy:
            await self._each_offloaded(leave_lake)
        return count

    async def _each_offloaded(self, work: Callable[[LedgerInfo, OffloadRecord], Awaitable[None]]) -> None:
        """One ledger after the other that is registered as ours; one that fails holds up no other.

        Raises the last failure, StorageError; LedgerClosedError and LedgerFencedError at once.
        """
        failure: StorageError | None = None
        in_a_row = 0
        for info in tuple(self._log.stored.ledgers.infos):
            record = record_of(info)
            if record is None or not record.is_ours:
                continue
            try:
                await work(info, record)
                in_a_row = 0
            except (LedgerClosedError, LedgerFencedError):
                raise
            except StorageError as error:
                _log.warning("%s: ledger %d: %s", self._log.name, info.ledger_id, error)
                failure, in_a_row = again(error), in_a_row + 1
                if in_a_row == FAILURES_MAX:
                    break
        if failure is not None:
            raise again(failure)

    async def _read_whole(self, info: LedgerInfo) -> None:
        """Each entry is read from bookies and its digest checked: the file goes only if nobody needs it."""
        ledger = await self._services.ledgers.open_ledger(info.ledger_id, recover=False)
        entry_id = 0
        while entry_id < info.entries:
            entry_id += len(await self._read(ledger, entry_id, info.entries - 1))

    async def _bring_back(self, info: LedgerInfo, record: OffloadRecord) -> None:
        """A ledger that is in the lake alone is on bookies, too, and registered so. Raises StorageError."""
        root = await self._services.lake().root(record.driver, record.properties)
        file = await root.open(self._directory, info.ledger_id, record.uid, self._stop)
        if file.facts.entries != info.entries:
            raise StorageError(f"{file.where} has {file.facts.entries} entries, the list says {info.entries}")
        await self._delete_copy(info.ledger_id)
        try:
            await bring_back(self._services.ledgers, file, self._log.persistence, self._read, self._stop)
        except LedgerClosedError:
            raise  # who has the list next deletes what there is
        except StorageError:
            await self._forget_copy(info.ledger_id)
            raise
        there = record._replace(is_bookkeeper_deleted=False)
        if not await self._register(info.ledger_id, there, expected=record.uid):
            await self._delete_copy(info.ledger_id)
            raise LedgerClosedError(f"{self._log.name}: ledger {info.ledger_id} was trimmed while it was restored")
        crash_point(points.RESTORE_REGISTERED)

    async def _forget_copy(self, ledger_id: int) -> None:
        """What an attempt to restore left goes: now, or with the next load or attempt."""
        try:
            await self._delete_copy(ledger_id)
        except StorageError as error:
            _log.warning("%s: ledger %d: the attempt is forgotten later: %s", self._log.name, ledger_id, error)

    async def _delete_copy(self, ledger_id: int) -> None:
        """What bookies have of a ledger goes, unless another owner has the topic: who took it over may have brought the
        ledger back since, and have no other copy. Raises LedgerFencedError, StorageError: the next look tries again.
        """
        was_tidy, self._is_tidy = self._is_tidy, False
        ledgers, stored = self._services.ledgers, self._log.stored
        for _ in range(DELETE_ATTEMPTS_MAX):
            try:
                version = (await ledgers.read_ledger(ledger_id)).version
            except NoSuchLedgerError:
                break
            # In this order: what was read was there before anybody else could have brought it back.
            async with stored.lock():
                await stored.require_ours()
            if await ledgers.delete_sealed_ledger(ledger_id, version):
                break
        else:
            raise StorageError(f"{self._log.name}: ledger {ledger_id} is not deleted now: its metadata go on changing")
        self._is_tidy = was_tidy

    async def _unregister(self, info: LedgerInfo, record: OffloadRecord) -> None:
        noted = await lake_files.note(self._services, self._log.name, self._log.stored.created_ms, [info])
        if await self._register(info.ledger_id, None, expected=record.uid):
            self._log.reader.forget(info.ledger_id)
            await manifests.delete_files(self._log.stored, self._services, noted)

    # ---- one ledger

    async def _offload(self, ledger_id: int) -> None:
        """Steps 1 to 5 of docs/formats/lake.md. Raises StorageError."""
        lake = self._services.lake()
        info = self._log.stored.ledgers.find(ledger_id)
        if info is None or not can_offload(info, self._log.stored.extent.readable):
            return
        root = await lake.root(self.policy.driver, self.policy.properties)
        await root.claim()
        await self._clear_torn(info)
        uid = self._rng.token(_UID_BYTES)
        record = OffloadRecord(uid, root.driver, root.properties)
        lane = await lake.take_lane(root)
        try:
            if not await self._register(ledger_id, record, expected=""):
                return
            crash_point(points.OFFLOAD_REGISTERED)
            ledger = await self._services.ledgers.open_ledger(ledger_id, recover=False)
            await self._write(root, info, uid, ledger, lane)
            done = record._replace(is_complete=True, completed_ms=self._services.clock.wall_ms())
            if not await self._register(ledger_id, done, expected=uid):
                # It was trimmed meanwhile. Its file is noted there, but may have come after that was done.
                await root.delete(self._directory, ledger_id, uid)
                return
            crash_point(points.OFFLOAD_COMPLETED)
        except StorageError:
            await self._forget_attempt(ledger_id)
            raise
        finally:
            lake.give_lane(root, lane)
        self.last_ledger_id, self.last_success_ms = ledger_id, self._services.clock.wall_ms()
        self._log.reader.forget(ledger_id)

    async def _forget_attempt(self, ledger_id: int) -> None:
        """The attempt failed: as after a crash, but now. The list comes first: its last write may have come through."""
        info = self._log.stored.ledgers.find(ledger_id)
        if info is None or self._log.tenure.is_over or self._stop.is_set:
            return  # who has the list next looks at what it names
        try:
            await self._clear_torn(info)
        except StorageError as error:
            _log.warning("%s: ledger %d: the attempt is forgotten later: %s", self._log.name, ledger_id, error)

    async def _register(self, ledger_id: int, record: OffloadRecord | None, *, expected: str | None) -> bool:
        """Change what is registered of a ledger; False if it is not there any more, or registered otherwise.

        ``expected``: uid that is registered now; empty: none. Raises StorageError, LedgerFencedError.
        """
        log = self._log
        async with log.stored.lock():
            if log.tenure.is_over or self._stop.is_set:
                raise LedgerClosedError(f"{log.name} is closed")
            info = log.stored.ledgers.find(ledger_id)
            if info is None:
                return False
            present = record_of(info)
            if (present.uid if present is not None else "") != expected:
                return False
            context = b"" if record is None else encode_offload_context(record)
            await log.stored.put_context(ledger_id, context)
            return True

    async def _write(self, root: Root, info: LedgerInfo, uid: str, ledger: Ledger, lane: str) -> None:
        facts = self._facts(info, uid, ledger)
        file = await root.begin(
            self._directory,
            facts,
            started_ms=self._services.clock.wall_ms(),
            writer="geminga",
            lane=lane,
            stop=self._stop,
        )
        try:
            entry_id = 0
            while entry_id < info.entries:
                entries = await self._read(ledger, entry_id, info.entries - 1)
                aborted = self._find_aborted(info.ledger_id, entry_id, entries) if self._find_aborted else frozenset()
                await file.add(entries, aborted)
                entry_id += len(entries)
            await file.finish(await self._schemas(file.schema_versions))
            crash_point(points.OFFLOAD_WRITTEN)
            await self._verify(await root.open(self._directory, info.ledger_id, uid, self._stop), ledger, facts)
            crash_point(points.OFFLOAD_VERIFIED)
        except StorageError:
            file.discard()
            raise

    def _facts(self, info: LedgerInfo, uid: str, ledger: Ledger) -> LedgerFacts:
        from geminga.lake.parquet import LedgerFacts

        if ledger.last_add_confirmed != info.entries - 1:
            there, where = ledger.last_add_confirmed + 1, f"{self._log.name}: ledger {info.ledger_id}"
            raise StorageError(f"{where} has {there} entries on the bookies, the list says {info.entries}")
        stored = ledger.metadata
        return LedgerFacts(
            str(TopicName.from_managed_ledger_name(self._log.name)),
            info.ledger_id,
            uid,
            info.entries,
            info.size_bytes,
            stored.created_ms or 0,
            info.closed_ms,
            stored.digest_type.name,
            stored.ensemble_size,
            stored.write_quorum,
            stored.ack_quorum,
            stored.custom_metadata,
        )

    async def _schemas(self, versions: Collection[bytes]) -> list[SchemaFacts]:
        """What the registry has of these, the oldest first, as far as there is room. Raises StorageError."""
        schemas: list[SchemaFacts] = []
        left, find = SCHEMAS_BYTES_MAX, self._find_schema
        if find is None:
            return schemas
        for version in sorted(versions):
            if self._stop.is_set:
                break
            found = await find(version)
            if found is None:
                continue
            left -= len(found.schema)
            if left < 0:
                break
            schemas.append(found)
        return schemas

    async def _read(self, ledger: Ledger, first: int, last: int) -> Sequence[bytes]:
        """Some entries, at least one. Raises StorageError."""
        results: list[Sequence[bytes] | StorageError] = []

        def begin(done: Callable[[], None]) -> None:
            def answered(result: Sequence[bytes] | StorageError) -> None:
                results.append(result)
                done()

            ledger.read(first, min(last, first + READ_ENTRIES - 1), answered, bytes_max=READ_BYTES)

        await self._stop.wait(begin)
        if isinstance(results[0], StorageError):
            raise again(results[0])
        return results[0]

    async def _verify(self, file: LakeFile, ledger: Ledger, facts: LedgerFacts) -> None:
        """Every entry of the file is that of the bookies. Raises CorruptionError, StorageError."""
        if file.facts != facts:
            raise StorageError(f"{file.where} says {file.facts}, expected {facts}")
        for group in range(file.group_count):
            stored: list[bytes] = []
            ids = file.entries_of(group)
            while len(stored) < len(ids):
                stored += await self._read(ledger, ids.start + len(stored), ids.stop - 1)
            await file.compare(group, stored, self._stop)

    # ---- what is left on bookies, and in the lake

    async def _leave_bookies(self) -> None:
        """Steps 6 and 7: the bookies' copy goes once the lag is over and the file can be read. Raises StorageError."""
        log = self._log

        async def leave(info: LedgerInfo, record: OffloadRecord) -> None:
            if not leaves_bookies(record, self.policy, self._services.clock.wall_ms()):
                return
            root = await self._services.lake().root(record.driver, record.properties)
            file = await root.open(self._directory, info.ledger_id, record.uid, self._stop)
            if file.facts.entries != info.entries:
                raise StorageError(f"{file.where} has {file.facts.entries} entries, the list says {info.entries}")
            if self.before_leaving is not None:
                await self.before_leaving()
            gone = record._replace(is_bookkeeper_deleted=True)
            if await self._register(info.ledger_id, gone, expected=record.uid):
                crash_point(points.OFFLOAD_BOOKIES_LEFT)
                log.reader.forget(info.ledger_id)
                await self._delete_copy(info.ledger_id)
                crash_point(points.OFFLOAD_BOOKIES_DELETED)

        await self._each_offloaded(leave)

    async def _clear_torn(self, info: LedgerInfo) -> None:
        """An attempt that was cut off: delete its file, then forget it. Raises StorageError."""
        record = record_of(info)
        if record is None or record.is_complete or not record.is_ours:
            return
        # Noted first, so that the file goes whatever happens once nothing names it.
        noted = await lake_files.note(self._services, self._log.name, self._log.stored.created_ms, [info])
        if await self._register(info.ledger_id, None, expected=record.uid):
            await lake_files.carry_out(self._services, noted)

    async def _tidy(self) -> None:
        """What a crash may have left, once for each load. Raises StorageError; then a later call goes on."""
        log = self._log
        if not any(info.offload_context for info in log.stored.ledgers.infos):
            # Most topics; the lake may have more of one whose metadata were brought back from a backup.
            if self.policy.driver and any(info.entries for info in log.stored.ledgers.infos):
                await self.write_manifests()
            self._is_tidy = True
            return
        for info in tuple(log.stored.ledgers.infos):
            await self._clear_torn(info)
            record = record_of(info)
            if record is not None and record.is_ours and record.is_bookkeeper_deleted:
                await self._delete_copy(info.ledger_id)
        await self.write_manifests()
        await self._tell_strays()
        self._is_tidy = True

    async def write_manifests(self) -> None:
        """Say in the lake what is there, where that is said otherwise. Raises StorageError."""
        await manifests.write(self._log.stored, self._services, policy=self.policy)

    async def _tell_strays(self) -> None:
        """Say which files of the topic's directory its list does not name. Raises StorageError.

        They are left alone: of an owner that lost the topic, or the only copy of what another cluster with a topic of
        this name keeps below the same root. Nothing in a file's name says which.
        """
        log = self._log
        for root in await manifests.roots(log.stored, self._services, self.policy):
            listed = {parse_ledger_file(file.name) for file in await root.list(self._directory)}
            known = {record.uid for info in log.stored.ledgers.infos if (record := record_of(info)) is not None}
            known |= {deletion.uid for deletion in await lake_files.waiting(self._services.metadata)}
            strays = [each for each in listed if each is not None and each.uid not in known]
            if strays:
                _log.warning(
                    "%s: %d files of its directory in the lake are in no list of this cluster, %s among them: they are"
                    " left there, as they may be another cluster's",
                    log.name,
                    len(strays),
                    ledger_file(*min(strays)),
                )
