"""All managed ledgers of a process: opening, deleting, what they share (cache, timer, settings).

Few timers for everything: for cursors nobody waits for, old cache entries and ledgers that are full by age. Each runs
only while there is something to do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from geminga.managed_ledger.rules.rollover import RolloverPolicy
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.managed_ledger.shared.config import ManagedLedgerConfig
from geminga.managed_ledger.shared.cursor_memory import CursorMemory
from geminga.managed_ledger.shared.entry_cache import EntryCache, TailWindow
from geminga.managed_ledger.shared.flush_timers import FlushTimers
from geminga.managed_ledger.shared.metadata_io import ROOT, UNKNOWN_ATTEMPTS_MAX, cursor_path, ledger_path
from geminga.managed_ledger.shared.services import CursorServices, RolledOver, StorageServices
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, SessionEvent
from geminga.model.byte_budget import ByteBudget
from geminga.model.errors import (
    BadVersionError,
    GemingaError,
    NodeNotEmptyError,
    NoSuchNodeError,
    NotFoundError,
    PreconditionFailedError,
    StorageError,
    UnavailableError,
    UnknownOutcomeError,
)
from geminga.model.limits import MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.model.position import EARLIEST
from geminga.runtime import again, get_logger
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    ManagedLedgerRecord,
    decode_cursor_info,
    encode_cursor_info,
    encode_managed_ledger_info,
)

if TYPE_CHECKING:
    from geminga.bookkeeper import BookKeeper
    from geminga.bookkeeper.giving_up import GivenUpEnd
    from geminga.lake.ownership import Owner
    from geminga.lake.service import Lake, OpenStore
    from geminga.managed_ledger.info import StoredInfo
    from geminga.managed_ledger.managed_ledger import ManagedLedger
    from geminga.managed_ledger.offload.lake_files import FileDeletion
    from geminga.managed_ledger.rules.cursor_format import ChooseFields
    from geminga.managed_ledger.rules.unreadable import Hole
    from geminga.runtime.ports import Runtime

#: Notes about lake files that are to be deleted (``lake_files``).
LAKE_DELETIONS: Final = "/geminga/lake-deletions"
#: How often ledgers are looked at for their age, seconds.
ROLLOVER_CHECK_SECONDS: Final = 60.0

#: Lists that are watched: of the watches that a metadata store takes namespaces, bundles and owners need most.
LIST_WATCHES_MAX: Final = 15_000

#: The value of a managed ledger that was made and never written to; Apache's brokers write an empty one.
_EMPTY: Final = encode_managed_ledger_info(ManagedLedgerRecord())

_log = get_logger(__name__)


class ManagedLedgerFactory:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookkeeper: BookKeeper,
        config: ManagedLedgerConfig | None = None,
        *,
        entry_bytes_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT,
        is_shared: bool = False,
        open_lake_store: OpenStore | None = None,
        cluster: str = "",
    ) -> None:
        """``entry_bytes_max``: what one entry may have, for who must have room before it is read.

        ``is_shared``: other brokers use the metadata, and one that lost a topic may not know it yet. Each opening costs
        a write for the list and for every cursor then. ``open_lake_store``: instead of directories and buckets.
        ``cluster``: what people call it.
        """
        config = config if config is not None else ManagedLedgerConfig()
        self.metadata = metadata
        self.bookkeeper = bookkeeper
        self.config = config
        self.entry_bytes_max = entry_bytes_max
        #: The connection to it is lost, and did not come back yet.
        self.is_metadata_away = False
        self._unsubscribe = metadata.on_session_event(self._on_session_event)
        self.cache = EntryCache(config.cache_size_mb << 20)
        #: Bytes being read from bookies and not passed on yet, of all managed ledgers.
        self.read_budget = ByteBudget(config.reads_in_flight_mb * 1024 * 1024)
        self.cursor_memory = CursorMemory(int(config.cursor_memory_mb * 1024 * 1024))
        self.flushes = FlushTimers(runtime.clock)
        #: The turns of cursors that catch up.
        self.catch_up = CatchUpTurns(runtime.clock, config.catch_up_share)
        self._being_made: Counter[tuple[str, bool]] = Counter()
        self._services = StorageServices(
            runtime.clock,
            metadata,
            bookkeeper,
            config,
            RolloverPolicy(
                max_entries=config.max_entries_per_ledger,
                max_size_bytes=config.max_size_per_ledger_mb * 1024 * 1024,
                min_age_ms=config.min_rollover_minutes * 60_000,
                max_age_ms=config.max_rollover_minutes * 60_000,
            ),
            config.persistence(),
            is_shared,
            _fields_for_pulsar(config) if is_shared else None,
            self.lake,
            self._being_made,
        )
        self._runtime = runtime
        self._open_lake_store = open_lake_store
        self._cluster = cluster
        self._lake: Lake | None = None
        self._open: dict[str, ManagedLedger] = {}
        self._opening: dict[str, asyncio.Future[ManagedLedger | GemingaError]] = {}
        self._is_closed = False
        #: Managed ledgers with an open ledger.
        self._rolling: dict[RolledOver, None] = {}
        self._cache_timer: asyncio.TimerHandle | None = None
        self._rollover_timer: asyncio.TimerHandle | None = None

    @cached_property
    def cursor_services(self) -> CursorServices:
        """What all cursors share; loaded with the first of them."""
        from geminga.managed_ledger.rules.acked_entries import AckedBitmap
        from geminga.managed_ledger.rules.plain_ranges import PlainRanges

        return CursorServices(
            self.cursor_memory,
            self.flushes,
            self.cache,
            self.catch_up,
            AckedBitmap if self.config.ack_bitmaps else PlainRanges,
        )

    def _on_session_event(self, event: SessionEvent) -> None:
        self.is_metadata_away = event is SessionEvent.CONNECTION_LOST

    # ---- open

    async def open(self, name: str) -> ManagedLedger:
        """The managed ledger of that name, created if need be; opens at the same time share one.

        Recovers the last ledger and all cursors. Raises StorageError; a later call may succeed.
        """
        while True:
            opened = self._open.get(name)
            if opened is not None:
                return opened
            if self._is_closed:
                raise UnavailableError("The broker is stopping")
            opening = self._opening.get(name)
            if opening is None:
                break
            result = await asyncio.shield(opening)
            del opening  # see runtime's value_of
            if isinstance(result, GemingaError):
                # Others are told of it, too.
                raise again(result)
            return result
        opening = self._opening[name] = asyncio.get_running_loop().create_future()
        result = UnavailableError("Loading the topic was given up, try again")
        try:
            # Loaded with the first.
            from geminga.managed_ledger.opening import load

            result = await load(self._services, self, name)
            self._open[name] = result
            if self._services.is_shared:
                result.watch_list(is_watched=len(self._open) <= LIST_WATCHES_MAX)
            return result
        except GemingaError as error:
            result = again(error)
            raise
        finally:
            del self._opening[name]
            opening.set_result(result)

    # ---- names

    def ledgers_being_made(self, name: str) -> tuple[int, int]:
        """Of a managed ledger now: for entries, and for its cursors."""
        return self._being_made[name, False], self._being_made[name, True]

    def get(self, name: str) -> ManagedLedger | None:
        """The managed ledger if it is open."""
        return self._open.get(name)

    async def exists(self, name: str) -> bool:
        """Whether there is a managed ledger of that name, open or not."""
        return name in self._open or await self.metadata.exists(ledger_path(name))

    async def info(self, name: str) -> StoredInfo | None:
        """What is stored of the managed ledger of that name, open or not; None if there is none."""
        from geminga.managed_ledger.info import read_info  # few ask

        return await read_info(self.metadata, name)

    async def encoded_names(self, prefix: str) -> list[str]:
        """What comes behind ``prefix/`` (``tenant/namespace/persistent``) in the names below it, sorted."""
        return await self.metadata.children(f"{ROOT}/{prefix}")

    async def create(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Make an empty managed ledger, with text properties, without opening it; fine if there is one. Raises
        MetadataError."""
        if name not in self._open and name not in self._opening:
            value = _EMPTY if not properties else encode_managed_ledger_info(ManagedLedgerRecord(properties=properties))
            await self._put_new(ledger_path(name), value)

    async def _put_new(self, path: str, value: bytes) -> None:
        for _ in range(UNKNOWN_ATTEMPTS_MAX):
            try:
                await self.metadata.put(path, value, expected_version=MUST_NOT_EXIST)
            except BadVersionError:
                return  # somebody made it, perhaps we ourselves in an attempt without an answer
            except UnknownOutcomeError:
                continue
            return
        raise UnknownOutcomeError(f"{path}: {UNKNOWN_ATTEMPTS_MAX} creations in a row without an answer")

    async def cursor_names(self, name: str) -> list[str]:
        """Names of the cursors that are stored, sorted; none if there is no managed ledger of that name."""
        return await self.metadata.children(ledger_path(name))

    async def stored_cursors(self, name: str) -> dict[str, CursorInfoRecord]:
        """The nodes of the cursors that are stored, by name, with what is saved along with the position of one that is
        open here; of others a cursor's ledger may have that newer. Raises MetadataError, CorruptionError."""
        found: dict[str, CursorInfoRecord] = {}
        for cursor_name in await self.cursor_names(name):
            node = await self.metadata.get(cursor_path(name, cursor_name))
            if node is not None:
                record, log = decode_cursor_info(node.value), self._open.get(name)
                cursor = None if log is None else log.cursors.get(cursor_name)
                found[cursor_name] = record if cursor is None else replace(record, properties=cursor.properties)
        return found

    async def add_cursors(self, name: str, cursors: Mapping[str, CursorInfoRecord]) -> bool:
        """Make cursors with these properties at the earliest position of a managed ledger that is not open and never
        had entries; by name.

        Those that are there stay as they are. False if it is not such a one: nothing was done. Raises MetadataError.
        """
        if name in self._open or name in self._opening:
            return False
        node = await self.metadata.get(ledger_path(name))
        if node is None or node.value not in (_EMPTY, b""):
            return False
        for cursor_name, like in cursors.items():
            record = CursorInfoRecord(
                -1,
                EARLIEST,
                properties=like.properties,
                cursor_properties=like.cursor_properties,
                last_active_ms=self._services.clock.wall_ms(),
            )
            await self._put_new(cursor_path(name, cursor_name), encode_cursor_info(record))
        return True

    async def is_unused(self, name: str) -> bool:
        """Whether there is one that was made and never had entries or cursors."""
        return await self._unused_version(name) is not None

    async def delete_unused(self, name: str) -> bool:
        """Delete one that :meth:`is_unused`, without opening it; False if it is not, or is not there."""
        version = await self._unused_version(name)
        if version is None:
            return False
        try:
            await self.metadata.delete(ledger_path(name), expected_version=version)
        except (BadVersionError, NoSuchNodeError, NodeNotEmptyError, UnknownOutcomeError):
            return False
        return True

    async def _unused_version(self, name: str) -> int | None:
        if name in self._open or name in self._opening:
            return None
        path = ledger_path(name)
        node = await self.metadata.get(path)
        if node is None or node.value not in (_EMPTY, b"") or await self.metadata.children(path):
            return None
        return node.stat.version

    async def delete(self, name: str) -> None:
        """Delete a managed ledger with its cursors and ledgers; fine if there is none. It is opened if it is not."""
        if not await self.exists(name):
            return
        ml = await self.open(name)
        for ledger_id in await ml.abandon():
            try:
                await self.bookkeeper.delete_ledger(ledger_id)
            except StorageError as error:
                _log.warning("%s: ledger %d was not deleted: %s", name, ledger_id, error)

    def on_closed(self, name: str, ml: RolledOver) -> None:
        """The managed ledger was closed or deleted."""
        if self._open.get(name) is ml:
            del self._open[name]
        self._rolling.pop(ml, None)

    # ---- the lake

    def lake(self) -> Lake:
        """Where offloaded ledgers are; loaded with the first of them."""
        if self._lake is None:
            from geminga.lake.service import Lake
            from geminga.lake.stores import open_store

            config = self.config
            self._lake = Lake(
                self._runtime,
                self._open_lake_store or open_store,
                self._owner,
                offloads_max=config.offload_threads,
                readers=config.lake_readers,
                cache_bytes=config.lake_cache_mb * 1024 * 1024,
            )
        return self._lake

    async def _owner(self) -> Owner:
        from geminga.lake.ownership import Owner

        return Owner(self._cluster, (await self.bookkeeper.installation.id()).decode())

    async def lake_deletions(self) -> Sequence[FileDeletion]:
        """Lake files that are to be deleted and are not yet. Raises MetadataError."""
        if not await self.metadata.children(LAKE_DELETIONS):
            return ()
        from geminga.managed_ledger.offload import lake_files

        return await lake_files.waiting(self.metadata)

    async def retry_lake_deletions(self) -> int:
        """Delete the lake files that earlier attempts left; how many are left. Raises MetadataError."""
        if not await self.metadata.children(LAKE_DELETIONS):
            return 0
        from geminga.managed_ledger.offload import lake_files

        return await lake_files.retry(self._services, self._runtime.rng)

    # ---- the timer

    async def find_holes(self, ml: ManagedLedger, ledger_ids: Collection[int] = ()) -> Sequence[Hole]:
        """Ledgers that can not be read: see ``holes``. Raises NotFoundError, LedgerClosedError."""
        from geminga.managed_ledger.holes import find_holes

        return await find_holes(ml, self._services, ledger_ids)

    async def is_closed_again(self, ml: ManagedLedger) -> bool:
        """Whether all that its load passed over can be read now: see ``replaying``. Raises LedgerClosedError."""
        from geminga.managed_ledger.replaying import is_closed_again

        return await is_closed_again(ml, self._services)

    async def skip_hole(self, ml: ManagedLedger, ledger_id: int, *, is_forced: bool, is_whole: bool) -> Hole:
        """Give up one of them: see ``holes``. Raises NotFoundError, PreconditionFailedError, StorageError."""
        if ml.is_shadow:
            raise PreconditionFailedError("The topic shows the ledgers of another one: they are given up there")
        from geminga.managed_ledger.holes import skip_hole

        return await skip_hole(ml, self._services, ledger_id, is_forced=is_forced, is_whole=is_whole)

    async def give_up_end(self, name: str, ledger_id: int, *, is_forced: bool, is_dry: bool) -> GivenUpEnd:
        """Close a ledger that keeps a managed ledger from being opened, its last one or a cursor's, behind the newest
        entry that can be read. Raises NotFoundError, PreconditionFailedError, StorageError."""
        if name in self._open:
            raise PreconditionFailedError("The topic is loaded: it is known where its ledgers end")
        if ledger_id not in await self.named_ledgers(name):
            raise NotFoundError("Neither the topic nor a subscription of it has such a ledger")
        return await self.bookkeeper.give_up_end(ledger_id, is_forced=is_forced, is_dry=is_dry)

    def cache_entries(self, window: TailWindow, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Keep confirmed entries for tail readers."""
        self.cache.add(window, payloads, size_bytes)
        if self._cache_timer is None and not self.cache.is_empty:
            self._arm_cache_timer()

    def settings_changed(self) -> None:
        """The cache's size, or how long it keeps entries, may be another."""
        self.cache.resize(self.config.cache_size_mb << 20)
        if self._cache_timer is not None:
            self._cache_timer.cancel()
            self._arm_cache_timer()

    def _arm_cache_timer(self) -> None:
        delay = self.config.cache_eviction_ms / 1000
        self._cache_timer = asyncio.get_running_loop().call_later(delay, self._evict)

    def _evict(self) -> None:
        self._cache_timer = None
        self.cache.evict_old()
        if not self.cache.is_empty:
            self._arm_cache_timer()

    def watch_rollover(self, ml: RolledOver) -> None:
        """The managed ledger has an open ledger, which will be full by age some time."""
        self._rolling[ml] = None
        if self._rollover_timer is None:
            self._rollover_timer = asyncio.get_running_loop().call_later(ROLLOVER_CHECK_SECONDS, self._check_rollover)

    def _check_rollover(self) -> None:
        loop = asyncio.get_running_loop()
        self._rollover_timer = loop.call_later(ROLLOVER_CHECK_SECONDS, self._check_rollover) if self._rolling else None
        for ml in self._rolling:
            # Each for itself: what breaks for one is neither the others' nor the next look's.
            loop.call_soon(self._roll, ml)

    def _roll(self, ml: RolledOver) -> None:
        if ml in self._rolling:
            ml.roll_if_full()

    async def named_ledgers(self, name: str) -> set[int]:
        """See :func:`named_ledgers`."""
        from geminga.managed_ledger.named_ledgers import named_ledgers  # loaded by whoever looks for orphans

        return await named_ledgers(self.metadata, name)

    # ---- end

    async def close(self) -> None:
        """Close every managed ledger and stop the timers."""
        self._is_closed = True
        self._unsubscribe()
        for opening in tuple(self._opening.values()):
            await asyncio.shield(opening)
        for ml in tuple(self._open.values()):
            await ml.close()
        self.flushes.close()
        self.catch_up.close()
        for timer in (self._cache_timer, self._rollover_timer):
            if timer is not None:
                timer.cancel()


def _fields_for_pulsar(config: ManagedLedgerConfig) -> ChooseFields:
    """Loaded where a broker of Apache's may come after us."""
    from geminga.managed_ledger.rules.pulsar_fields import PulsarLimits, pulsar_fields

    limits = PulsarLimits(config.max_ranges_in_entry, config.max_batches_in_entry, config.bit_sets_in_entry)
    return partial(pulsar_fields, limits)
