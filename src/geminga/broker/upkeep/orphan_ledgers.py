"""Deletes the ledgers that a crash left behind: made by this installation and named by none of its lists.

The rules are ``core.orphan_looks``'. Lists are those of managed ledgers and cursors, of schemas and of delayed
indexes; one that can not be read or decoded ends the look, for it may name any ledger. At the moment of deletion a
ledger is sealed first (recovered: nobody gets an acknowledgment for an entry of it any more), then the lists are
read once more, and it is deleted only under the version of its metadata that the seal left. So whatever a writer that
slept meanwhile does, an acknowledged entry stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.bookkeeper.installation import META_INSTALLATION
from geminga.broker.core.orphan_looks import AGE_MS, APART_S, OrphanLooks, OrphanVerdict, SeenLedger
from geminga.broker.schema import store as schema_store
from geminga.broker.topic import delayed_snapshots
from geminga.managed_ledger.named_ledgers import all_named_ledgers
from geminga.managed_ledger.shared.metadata_io import ROOT as MANAGED_LEDGERS_ROOT
from geminga.model.errors import CorruptionError, MetadataError, NoSuchLedgerError, StorageError
from geminga.runtime import Runtime, get_logger

if TYPE_CHECKING:
    from geminga.bookkeeper import BookKeeper
    from geminga.metadata.ports import MetadataStore

#: Ids spelled out in a log line.
SHOWN_MAX: Final = 10

_log = get_logger(__name__)


class OrphanLedgers:
    """One for each broker; looks follow each other."""

    __slots__ = (
        "_age_ms",
        "_apart_s",
        "_at_once_max",
        "_bookkeeper",
        "_looks",
        "_metadata",
        "_reported",
        "_runtime",
        "deleted_count",
        "last",
    )

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookkeeper: BookKeeper,
        *,
        at_once_max: int,
        age_ms: int = AGE_MS,
        apart_s: float = APART_S,
    ) -> None:
        """``metadata`` holds the lists. ``at_once_max``: above so many at once none is deleted."""
        self._runtime = runtime
        self._metadata = metadata
        self._bookkeeper = bookkeeper
        self._at_once_max = at_once_max
        self._age_ms = age_ms
        self._apart_s = apart_s
        #: Made with the first look, which reads who we are.
        self._looks: OrphanLooks | None = None
        self._reported: tuple[Sequence[object], ...] = ((), (), ())
        #: What the last finished look came to.
        self.last = OrphanVerdict()
        #: Ledgers deleted since the start.
        self.deleted_count = 0

    async def look(self) -> Sequence[int]:
        """One look; ids of the ledgers deleted. Raises StorageError when it could not be finished: nothing happened.

        Walks all ledgers and all lists: for the background, seldom.
        """
        clock = self._runtime.clock
        looks = self._looks
        if looks is None:
            looks = self._looks = OrphanLooks(
                await self._bookkeeper.installation.id(),
                at_once_max=self._at_once_max,
                age_ms=self._age_ms,
                apart_s=self._apart_s,
            )
        began_s = clock.monotonic()
        ledgers = await self._ledgers()
        # Read after the ledgers were seen: one that is listed meanwhile is named.
        named = await self._named()
        verdict = looks.look(ledgers, named, began_s=began_s, ended_s=clock.monotonic(), wall_ms=clock.wall_ms())
        self.last = verdict
        self._report(verdict)
        return await self._delete(verdict.garbage) if verdict.garbage else ()

    async def _ledgers(self) -> Sequence[SeenLedger]:
        found = []
        for ledger_id in await self._bookkeeper.ledger_ids():
            try:
                stored = await self._bookkeeper.read_ledger(ledger_id)
            except NoSuchLedgerError:
                continue
            except CorruptionError:
                found.append(SeenLedger(ledger_id, 0, 0, None))
                continue
            owner = stored.metadata.custom_metadata.get(META_INSTALLATION)
            found.append(SeenLedger(ledger_id, stored.version, stored.node_created_ms, owner))
        return found

    async def _named(self) -> set[int]:
        # A list of a server that lags behind may lack what was named by now. What clusters share is elsewhere, may be
        # away, and names none.
        for root in (MANAGED_LEDGERS_ROOT, schema_store.ROOT, delayed_snapshots.ROOT):
            await self._metadata.sync(root)
        found = await all_named_ledgers(self._metadata)
        found |= await schema_store.named_ledgers(self._metadata)
        found |= await delayed_snapshots.named_ledgers(self._metadata)
        return found

    async def _delete(self, garbage: Sequence[SeenLedger]) -> Sequence[int]:
        sealed: dict[int, int] = {}
        for ledger in garbage:
            try:
                version = await self._bookkeeper.seal_ledger(ledger.ledger_id, ledger.version)
            except MetadataError:
                raise
            except StorageError as error:
                _log.warning("orphan ledger %d is not deleted now, for it can not be sealed: %s", ledger[0], error)
                continue
            if version is not None:
                sealed[ledger.ledger_id] = version
        named = await self._named()
        deleted = [
            ledger_id
            for ledger_id, version in sealed.items()
            if ledger_id not in named and await self._bookkeeper.delete_sealed_ledger(ledger_id, version)
        ]
        self.deleted_count += len(deleted)
        if deleted:
            _log.info("deleted %d ledgers that a crash had left behind: %s", len(deleted), _shown(deleted))
        return deleted

    def _report(self, verdict: OrphanVerdict) -> None:
        """One line for each kind of ledger that is left alone, when it changed."""
        held = [ledger.ledger_id for ledger in verdict.held]
        now = (held, verdict.unclaimed, verdict.foreign)
        before, self._reported = self._reported, now
        if held and held != before[0]:
            _log.error(
                "%d ledgers of this installation are in no list (%s), more than gemingaOrphanLedgersDeletedAtOnceMax="
                "%d: were the lists restored from an older backup? They are kept; raise the setting to delete them",
                len(held),
                _shown(held),
                self._at_once_max,
            )
        if verdict.unclaimed and verdict.unclaimed != before[1]:
            _log.warning(
                "%d ledgers are in no list and name no installation (%s): they are kept",
                len(verdict.unclaimed),
                _shown(verdict.unclaimed),
            )
        if verdict.foreign and verdict.foreign != before[2]:
            _log.info("%d ledgers belong to other installations (%s)", len(verdict.foreign), _shown(verdict.foreign))

    def metrics(self) -> Mapping[str, float]:
        """Of the last look."""
        last = self.last
        return {
            "geminga_orphan_ledgers_waiting": len(last.waiting),
            "geminga_orphan_ledgers_held": len(last.held),
            "geminga_orphan_ledgers_unclaimed": len(last.unclaimed),
            "geminga_foreign_ledgers": len(last.foreign),
            "geminga_orphan_ledgers_deleted_total": self.deleted_count,
        }


def _shown(ledger_ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ledger_ids[:SHOWN_MAX]))
    return shown if len(ledger_ids) <= SHOWN_MAX else f"{shown}, ..."
