"""``ShadowLedger``: a log that shows the ledgers of another one, its source, and has cursors of its own.

Nothing is copied and nothing is written but its cursors and its own node, which names the source
(``PULSAR.SHADOW_SOURCE``). The list of ledgers is that of the source's node, which is watched; how far the source's
open ledger reaches is told by the source's owner (:meth:`ShadowLedger.told`), for a bookie does not say of its newest
entries that they are confirmed. A ledger is opened without fencing whoever writes it.

Which ledgers there are is up to the source: what it trims is gone here too, read or not. Who lost by that is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.managed_ledger import ManagedLedger
from geminga.managed_ledger.rules.shadow import confirm, follow, gone_of, source_of
from geminga.managed_ledger.shared.entry import AppendDone, AppendResult
from geminga.managed_ledger.shared.metadata_io import MetadataNode, ledger_path
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices
from geminga.managed_ledger.trimming import Trimmer
from geminga.model.errors import (
    CorruptionError,
    InvalidTopicNameError,
    NoSuchLedgerError,
    NotAllowedError,
    StorageError,
)
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.runtime import get_logger, spawn
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, decode_managed_ledger_info

if TYPE_CHECKING:
    from collections.abc import Collection

    from geminga.managed_ledger.log.attached import AttachedLedgers
    from geminga.managed_ledger.offload.offloading import FindAborted, FindSchema, Offloading
    from geminga.managed_ledger.rules.positions import LedgerInfo
    from geminga.managed_ledger.shared.ports import FollowedLedger, Ledger
    from geminga.metadata.ports import Node, Notification, Unsubscribe
    from geminga.runtime import Rng

_log = get_logger(__name__)


async def open_shadow(
    services: StorageServices, home: LedgerHome, name: str, node: MetadataNode, record: ManagedLedgerRecord
) -> ShadowLedger:
    """The shadow whose own node has ``record``, with the list of its source. Raises StorageError."""
    try:
        source_name = source_of(record.properties, name)
    except InvalidTopicNameError as error:
        raise CorruptionError(f"{name}: {error}") from error
    assert source_name is not None
    ml = ShadowLedger(services, home, name, node, record, source_name)
    await ml.look()
    return ml


def _only_there() -> NotAllowedError:
    return NotAllowedError("A shadow topic shows the messages of another one: they are published and kept there alone")


class ShadowLedger(ManagedLedger):
    """See the module."""

    __slots__ = (
        "_created_ms",
        "_is_asked",
        "_is_looking",
        "_told",
        "_unsubscribe",
        "has_source",
        "lost",
        "source_name",
        "version",
    )

    reader: FollowingReader

    def __init__(
        self,
        services: StorageServices,
        home: LedgerHome,
        name: str,
        node: MetadataNode,
        record: ManagedLedgerRecord,
        source_name: str,
    ) -> None:
        """``record``: what its own node has. Follows nothing before :meth:`look`."""
        #: The managed ledger whose ledgers it shows.
        self.source_name = source_name
        #: Whether there was a source at the last look; the newest version of its node, and when that was made.
        self.has_source = False
        self.version = -1
        self._created_ms = 0
        #: Entries that went at the source before a cursor had them, since it was opened, by cursor.
        self.lost: dict[str, int] = {}
        #: How far the source reaches, as its owner said, and the bytes of that ledger.
        self._told = (EARLIEST, 0)
        self._is_asked = self._is_looking = False
        # Apache's brokers write the source's ledgers into the shadow's node: they are read where they belong.
        own = ManagedLedgerRecord(properties=record.properties)
        super().__init__(services, home, name, node, own, SourceList)
        self.reader = FollowingReader(self, services, home)
        self.trimmer = KeptBySource(self, self.tenure, self.stored, self.cursors, services)
        self._unsubscribe: Unsubscribe = services.metadata.watch_node(ledger_path(source_name), self._on_change)

    @property
    def is_shadow(self) -> bool:
        """It is one."""
        return True

    # ---- following the source

    async def look(self) -> None:
        """Have the list that the source's node has now. Raises StorageError."""
        node = await self._services.metadata.get(ledger_path(self.source_name))
        if node is not None and (node.stat.created_ms, node.stat.version) < (self._created_ms, self.version):
            return  # an older answer that came late
        record = ManagedLedgerRecord() if node is None else self._decoded(node)
        self.has_source = node is not None
        if node is not None:
            self._created_ms, self.version = node.stat.created_ms, node.stat.version
        before = self.extent.readable_position
        self._drop(record.ledgers)
        for ledger_id in follow(self.ledgers, record.ledgers):
            self.reader.forget(ledger_id)
        was_open = self.stored.terminated_position is None
        self.stored.terminated_position = record.terminated
        self._reach(before, is_ended=was_open and record.terminated is not None)

    def told(self, last: Position, size_bytes: int, version: int) -> None:
        """The source's owner says that the source is stored up to ``last``, whose ledger has ``size_bytes``, and that
        its node has at least ``version``. What is older than what is known changes nothing."""
        self._told = max(self._told, (last, size_bytes))
        self._reach(self.extent.readable_position)
        if version > self.version:
            self.look_soon()

    def look_soon(self) -> None:
        """In the background; several are one."""
        self._is_asked = True
        if not self._is_looking:
            self._is_looking = True
            spawn(self._look(), name=f"look-at-source-of-{self.name}", part=self.tenure.part)

    async def _look(self) -> None:
        try:
            while self._is_asked and not self.tenure.is_over:
                self._is_asked = False
                await self.look()
        except StorageError as error:
            _log.warning("%s: the list of its source %s was not read: %s", self.name, self.source_name, error)
        finally:
            self._is_looking = False

    def _on_change(self, _: Notification) -> None:
        self.look_soon()

    def _decoded(self, node: Node) -> ManagedLedgerRecord:
        try:
            return decode_managed_ledger_info(node.value)
        except CorruptionError as error:
            raise CorruptionError(f"{ledger_path(self.source_name)}: {error}") from error

    def _drop(self, records: Sequence[LedgerRecord]) -> None:
        """Ledgers that the source has no more are gone, and so is what cursors had not read of them."""
        gone = gone_of(self.ledgers, records)
        if not gone:
            return
        backlogs = {name: cursor.backlog_count for name, cursor in self.cursors.items()}
        for ledger_id in gone:
            self.reader.forget(ledger_id)
            self.stored.failures.pop(ledger_id, None)
        self.on_trimmed(gone)
        for name, cursor in self.cursors.items():
            entries = backlogs[name] - cursor.backlog_count
            if entries > 0:
                self.lost[name] = self.lost.get(name, 0) + entries
                _log.warning(
                    "%s: %d entries went with ledgers %s of its source %s before %s had them",
                    self.name,
                    entries,
                    gone,
                    self.source_name,
                    name,
                )

    def _reach(self, before: Position, *, is_ended: bool = False) -> None:
        """The list, or what is known of its end, is another; ``before``: how far was readable."""
        last, size_bytes = self._told
        confirm(self.ledgers, last, size_bytes)
        self.extent.recovered()
        self.reader.advance()
        if self.extent.readable_position > before or is_ended:
            for cursor in self.cursor_set.all():
                cursor.on_more_readable()
            self.tail.tell_later(self.tenure.part)

    # ---- what only the source does

    def append(self, entries: Sequence[bytes], done: AppendDone) -> None:
        """Nothing: ``done`` hears NotAllowedError."""
        done(AppendResult(-1, -1, 0, len(entries), _only_there()))

    async def open_ledger(self) -> None:
        """There is none that takes entries."""

    async def roll(self, *, only_failed: bool = False) -> None:
        """Nothing: the source's ledgers are closed by its owner."""

    async def terminate(self) -> Position:
        """Raises NotAllowedError."""
        raise _only_there()

    def new_offloading(
        self, rng: Rng, find_aborted: FindAborted | None = None, find_schema: FindSchema | None = None
    ) -> Offloading:
        """Raises NotAllowedError."""
        raise _only_there()

    def attached(self) -> AttachedLedgers:
        """Raises NotAllowedError."""
        raise _only_there()

    def _end(self) -> None:
        super()._end()
        self._unsubscribe()


class SourceList(StoredList):
    """The node of a shadow, which has its properties, with the ledgers of its source, which it does not write."""

    __slots__ = ()

    @property
    def own(self) -> Sequence[LedgerInfo]:
        """None: they are the source's, and stay."""
        return ()

    def drop_empty(self) -> None:
        """The source does."""

    async def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """The source does."""

    async def put_context(self, ledger_id: int, context: bytes) -> None:
        """Raises NotAllowedError."""
        raise _only_there()

    def _own_record(self, record: ManagedLedgerRecord) -> ManagedLedgerRecord:
        return ManagedLedgerRecord(properties=record.properties)


class KeptBySource(Trimmer):
    """What stays and what goes is the source's to say."""

    __slots__ = ()

    def trim_later(self) -> None:
        """Nothing is."""

    async def trim(self) -> None:
        """Nothing is."""

    async def truncate(self, through: Position = LATEST, *, kept: Collection[str] = ()) -> None:
        """Raises NotAllowedError."""
        raise _only_there()


class FollowingReader(LogReader):
    """Reads ledgers of the source, one of which its owner may be writing."""

    __slots__ = ("_growing", "_shadow")

    def __init__(self, shadow: ShadowLedger, services: StorageServices, home: LedgerHome) -> None:
        super().__init__(shadow.tenure, shadow.stored, shadow.tail, services, home)
        self._shadow = shadow
        #: Ledgers that were open when they were last looked at: one, but for a moment.
        self._growing: dict[int, FollowedLedger] = {}

    async def open_to_read(self, info: LedgerInfo) -> Ledger:
        """A ledger of the source, wherever it lies, without closing it. Raises StorageError."""
        try:
            if info.offload_context:
                return await self._services.open_to_read(
                    self._shadow.source_name, info, is_bookkeeper_first=self.is_bookkeeper_first
                )
            ledger = await self._services.ledgers.follow_ledger(info.ledger_id)
        except NoSuchLedgerError:
            self._shadow.look_soon()  # the source has deleted it: the list says so, or will
            raise
        self._growing[info.ledger_id] = ledger
        self.advance()
        return ledger

    def advance(self) -> None:
        """What is open may be read as far as the list says that it is stored."""
        for ledger_id, ledger in [*self._growing.items()]:
            info = self._shadow.ledgers.find(ledger_id)
            if info is not None:
                ledger.confirm(info.entries - 1)
            if info is None or info.closed_ms:
                del self._growing[ledger_id]
