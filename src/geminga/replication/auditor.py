"""The auditor: finds ledgers that lack copies and marks them. Of all candidates one is elected.

It looks when a bookie went and did not come back in time, now and then all the same, and seldom at what every bookie
really has.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.ledger_store import LedgerNode
from geminga.metadata.ports import MetadataStore, SessionEvent
from geminga.model.errors import CorruptionError, MetadataError, NoSuchLedgerError, StorageError
from geminga.replication import crash_points
from geminga.replication.config import ReplicationConfig
from geminga.replication.copier import Copier, NoAnswerError
from geminga.replication.core.audit import AuditSchedule
from geminga.replication.core.copying import expected_of, missing_entries
from geminga.replication.core.fragments import bookies_of, lost_bookies, settled_fragments
from geminga.replication.counters import ReplicationCounters
from geminga.replication.election import Election
from geminga.replication.marks import RecoveryDelay, UnderReplicatedLedgers
from geminga.replication.registry import BookieRegistry
from geminga.runtime import Runtime, SparseWarnings, crash_point, get_logger, set_within

#: Votes and registrations are read at least so often: watches may be lost.
LOOK_S: Final = 60.0
#: One that said nothing is not asked by a check of everything for so long: each ledger would wait for it.
SILENT_S: Final = 600.0

_log = get_logger(__name__)


class Auditor:
    """One candidate. See the module; :meth:`run` until it is called off."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookkeeper: BookKeeper,
        registry: BookieRegistry,
        copier: Copier,
        config: ReplicationConfig,
        *,
        name: str,
        counters: ReplicationCounters,
    ) -> None:
        self._clock = runtime.clock
        self._warnings = SparseWarnings(_log, runtime.clock.monotonic)
        self._metadata = metadata
        self._marks = UnderReplicatedLedgers(metadata)
        self._election = Election(metadata, name)
        self._bookkeeper = bookkeeper
        self._registry = registry
        self._copier = copier
        self._config = config
        self._counters = counters
        #: While elected.
        self._schedule: AuditSchedule | None = None
        self._delay = RecoveryDelay(0, 0)
        #: While everything is checked: when to look at votes and registrations again, whatever is heard.
        self._look_at_s = 0.0
        #: The same: bookies that said nothing, and until when they are not asked.
        self._silent: dict[str, float] = {}
        self._due = asyncio.Event()

    @property
    def is_elected(self) -> bool:
        """Whether it was when it last looked."""
        return self._schedule is not None

    # ---- the loop

    async def run(self) -> None:
        """Take part in the election and audit while elected, for ever; called off by cancelling."""
        unsubscribes = [
            self._election.watch(lambda _: self.look()),
            self._registry.watch(self.look),
            self._marks.watch_recovery_delay(lambda _: self.look()),
            self._metadata.on_session_event(self._session_changed),
        ]
        try:
            while True:
                await set_within(self._due, await self._step())
                self._due.clear()
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    def look(self) -> None:
        """Something may have changed."""
        self._due.set()

    async def leave(self) -> None:
        """Let another one be elected; after :meth:`run`."""
        self._schedule = None
        await self._election.leave()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTION_LOST:
            self.look()

    async def _step(self) -> float:
        """Seconds until there may be more to do."""
        try:
            return await self._step_elected() if await self._elected() else LOOK_S
        except MetadataError as error:
            self._warnings.warn(f"the auditor goes on in {self._config.rw_rereplicate_backoff_ms} ms: {error}")
            return self._config.rw_rereplicate_backoff_ms / 1000

    async def _elected(self) -> bool:
        if not await self._election.is_elected():
            self._schedule = None
            return False
        delay = await self._marks.recovery_delay(self._config.lost_bookie_recovery_delay_s)
        now = self._clock.monotonic()
        if self._schedule is None:
            interval_s = self._config.auditor_periodic_bookie_check_interval_s
            self._schedule = AuditSchedule(now, delay_s=delay.seconds, interval_s=interval_s)
        elif delay != self._delay:
            self._schedule.delay_changed(now, delay_s=delay.seconds)
            if delay.seconds in (0, self._delay.seconds):
                # The same value once more is how BookKeeper's shell asks for a look, also before it decommissions.
                self._schedule.asked(now)
        self._delay = delay
        return True

    async def _step_elected(self) -> float:
        wait_s = await self._audit_if_due()
        if not await self._marks.is_enabled():
            return LOOK_S
        if wait_s != 0 and await self._is_full_check_due():
            await self.check_all()
        return LOOK_S if wait_s is None else min(LOOK_S, wait_s)

    async def _audit_if_due(self) -> float | None:
        """Seconds until the next look, as of the schedule; 0: there was one."""
        schedule = self._schedule
        assert schedule is not None
        registered = await self._registry.registered()
        schedule.registered(registered.all, self._clock.monotonic(), delay_s=self._delay.seconds)
        if not await self._marks.is_enabled():
            return None
        wait_s = schedule.wait_s(self._clock.monotonic())
        if wait_s == 0:
            if not await self.audit():
                return self._config.rw_rereplicate_backoff_ms / 1000
            schedule.looked(self._clock.monotonic())
        return wait_s

    # ---- looking

    async def audit(self) -> bool:
        """Mark every ledger that names a bookie which is not registered; False: that could not be told.

        Raises MetadataError.
        """
        registered = (await self._registry.registered()).all
        if not registered:
            # Nobody could take a copy. It is the metadata store, or the whole cluster, that is ill.
            _log.warning("no bookie is registered: nothing is marked")
            return False
        for ledger_id in await self._bookkeeper.ledger_ids():
            stored = await self._read(ledger_id)
            lost = () if stored is None else lost_bookies(stored.metadata, registered)
            if lost:
                await self._mark(ledger_id, lost)
        self._counters.audits += 1
        crash_point(crash_points.AUDITED)
        return True

    async def check_all(self) -> None:
        """Mark every ledger that a registered bookie has not all its entries of. Raises MetadataError.

        It may take hours: bookies that go meanwhile are noticed, and it ends where another one is elected.
        """
        self._silent.clear()
        self._look_at_s = self._clock.monotonic() + LOOK_S
        for ledger_id in await self._bookkeeper.ledger_ids():
            if not await self._marks.is_enabled() or not await self._goes_on():
                return
            stored = await self._read(ledger_id)
            if stored is not None:
                await self._check(ledger_id, stored)
        await self._marks.set_checked_all(self._clock.wall_ms())
        self._counters.full_checks += 1

    async def _goes_on(self) -> bool:
        """Between two ledgers: look as ever, if it is time; whether to check on."""
        now = self._clock.monotonic()
        if self._schedule is None or not (self._due.is_set() or now >= self._look_at_s):
            return True
        self._due.clear()
        self._look_at_s = now + LOOK_S
        if not await self._elected():
            return False
        await self._audit_if_due()
        return True

    async def _check(self, ledger_id: int, stored: LedgerNode) -> None:
        metadata = stored.metadata
        registered = (await self._registry.registered()).all
        settled = list(settled_fragments(metadata))
        incomplete = []
        for bookie_id in sorted(bookies_of(metadata)):
            expected = expected_of(metadata, settled, bookie_id)
            if bookie_id not in registered or not any(expected):
                continue
            if self._silent.get(bookie_id, 0.0) > self._clock.monotonic():
                self._counters.unknown_answers += 1
                continue
            try:
                listed = await self._copier.listed(ledger_id, bookie_id)
            except NoSuchLedgerError:
                listed = []
            except StorageError as error:
                # Not known is not missing.
                self._counters.unknown_answers += 1
                if isinstance(error, NoAnswerError):
                    self._silent[bookie_id] = self._clock.monotonic() + SILENT_S
                _log.warning("ledger %d: bookie %s does not say what it has: %s", ledger_id, bookie_id, error)
                continue
            if any(missing_entries(run, listed) for run in expected):
                incomplete.append(bookie_id)
        lost = [name for name in lost_bookies(metadata, registered) if registered]
        if incomplete or lost:
            _log.warning("ledger %d lacks copies on %s", ledger_id, ", ".join([*incomplete, *lost]))
            await self._mark(ledger_id, (*incomplete, *lost))

    async def _is_full_check_due(self) -> bool:
        interval_ms = self._config.auditor_periodic_check_interval_s * 1000
        if not interval_ms:
            return False
        checked_ms = await self._marks.checked_all_ms()
        if checked_ms is None:
            # Begins to count with the first auditor: a new cluster has nothing to check.
            await self._marks.set_checked_all(self._clock.wall_ms())
            return False
        return not 0 <= self._clock.wall_ms() - checked_ms < interval_ms

    async def _read(self, ledger_id: int) -> LedgerNode | None:
        """None: deleted meanwhile, or nobody can tell what it is."""
        try:
            return await self._bookkeeper.read_ledger(ledger_id)
        except NoSuchLedgerError:
            return None
        except CorruptionError as error:
            _log.error("ledger %d can not be audited: %s", ledger_id, error)
            return None

    async def _mark(self, ledger_id: int, replicas: tuple[str, ...]) -> None:
        marked_ms = self._clock.wall_ms() if self._config.store_mark_time else None
        await self._marks.mark(ledger_id, replicas, marked_ms)
        self._counters.ledgers_marked += 1
        crash_point(crash_points.MARKED)
