"""The transaction coordinators of a broker: those whose partitions of ``transaction_coordinator_assign`` are here.

A coordinator whose log has something that is not over is opened when its partition comes here, for transactions in it
time out; any other, when a client asks for it. One that lost its log is opened anew after a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from geminga.broker.ownership.ports import Here, Ownership, Topics
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.managed_ledger import ManagedLedger, ManagedLedgerFactory
from geminga.model.errors import GemingaError, TransactionCoordinatorNotFoundError, UnavailableError
from geminga.model.topic_name import SYSTEM_NAMESPACE, TRANSACTION_LOG_CURSOR, TRANSACTION_LOG_PREFIX
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import Part, Runtime, get_logger, spawn, wait_ms
from geminga.transaction.coordinator import CoordinatorConfig, TransactionCoordinator
from geminga.transaction.logs import LedgerRecordLog
from geminga.transaction.ports import Participants, StandingsElsewhere

_log = get_logger(__name__)

#: Milliseconds until one that lost its log, or could not be opened, is tried again: doubled from the first to the last.
REOPEN_FIRST_MS: Final = 500
REOPEN_MAX_MS: Final = 60_000
#: Seconds that another broker may take to say how a transaction stands before something of it is taken.
ASK_S: Final = 5.0


def log_name(number: int) -> str:
    """The managed ledger of a coordinator's log."""
    return f"{SYSTEM_NAMESPACE}/persistent/{TRANSACTION_LOG_PREFIX}{number}"


class Coordinators:
    """See the module."""

    __slots__ = (
        "_config",
        "_count",
        "_elsewhere",
        "_is_closed",
        "_ledgers",
        "_logs",
        "_open",
        "_opening",
        "_ownership",
        "_part",
        "_participants",
        "_resting",
        "_runtime",
    )

    def __init__(
        self,
        runtime: Runtime,
        ledgers: ManagedLedgerFactory,
        ownership: Ownership,
        participants: Participants,
        config: CoordinatorConfig,
        *,
        count: Callable[[], Awaitable[int]],
        part: Part,
        elsewhere: StandingsElsewhere | None = None,
    ) -> None:
        """``count``: how many coordinators the cluster has. ``part``: whose failure it is if one breaks.
        ``elsewhere``: those of other brokers; None: they can not be asked."""
        self._runtime = runtime
        self._ledgers = ledgers
        self._ownership = ownership
        self._participants = participants
        self._config = config
        self._count = count
        self._part = part
        self._elsewhere = elsewhere
        self._open: dict[int, TransactionCoordinator] = {}
        self._logs: dict[int, ManagedLedger] = {}
        self._opening: dict[int, asyncio.Lock] = {}
        #: Lost their log a moment ago. Opened at once, by topics that ask what becomes of a transaction, they tell
        #: topics of ends, which load and ask again: without a pause nothing else is done while storage is away.
        self._resting: set[int] = set()
        self._is_closed = False

    # ---- life

    async def resume(self, numbers: Collection[int]) -> None:
        """Go on with these, which left something; again after a moment where that fails."""
        for number in numbers:
            try:
                await self.find(number)
            except TransactionCoordinatorNotFoundError:
                continue  # another broker has it
            except GemingaError as error:
                _log.warning("transaction coordinator %d can not be opened now: %s", number, error)
                self._again(number, REOPEN_FIRST_MS)

    async def taken(self, topics: Topics) -> None:
        """As :class:`OwnershipListener` says."""
        taken = [one for one in self._opening.items() if topics(COORDINATORS_TOPIC.with_partition(one[0]))]
        for number, _ in taken:
            # All at once: closing the log of one may take as long as storage does.
            if (coordinator := self._open.get(number)) is not None:
                coordinator.stop()
        for number, opening in taken:
            async with opening:
                await self._close(number)

    async def close(self) -> None:
        """Close all; what is decided goes on where each is opened next."""
        self._is_closed = True
        for number in list(self._open):
            await self._close(number)

    async def _close(self, number: int) -> None:
        coordinator, ledger = self._open.pop(number, None), self._logs.pop(number, None)
        if coordinator is None or ledger is None:
            return  # it is not open, or lost its log
        try:
            await coordinator.close()
        except GemingaError as error:
            _log.warning("transaction coordinator %d was not closed cleanly: %s", number, error)
            await ledger.close(is_broken=True)

    # ---- finding

    async def find(self, number: int) -> TransactionCoordinator:
        """The coordinator, open. Raises TransactionCoordinatorNotFoundError, GemingaError."""
        known = self._open.get(number)
        if known is not None:
            return known
        if self._is_closed:
            raise UnavailableError("the broker is closing")
        if number in self._resting:
            raise UnavailableError(
                f"transaction coordinator {number} lost its log a moment ago: it is opened anew soon"
            )
        # A client says which: nothing is kept of those that are not there.
        if not 0 <= number < await self._count():
            raise TransactionCoordinatorNotFoundError(f"Transaction coordinator not found: {number}")
        async with self._opening.setdefault(number, asyncio.Lock()):
            known = self._open.get(number)
            if known is not None:
                return known
            if self._is_closed:
                raise UnavailableError("the broker is closing")
            owner = await self._ownership.owner_of(COORDINATORS_TOPIC.with_partition(number))
            if not isinstance(owner, Here):
                raise TransactionCoordinatorNotFoundError(f"Transaction coordinator {number} is not served here")
            return await self._opened(number)

    def standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """As :class:`Registrations` says."""
        coordinator = self._open.get(txn_id.coordinator)
        return None if coordinator is None else coordinator.state.standing(txn_id, participant)

    async def find_standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """As :class:`Registrations` says."""
        found = await self._own_or_over(txn_id, participant)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(ASK_S):
                return await self._standing_elsewhere(txn_id, participant)
        except (GemingaError, TimeoutError) as error:
            # Whoever holds something asks again: what is wrong now is found then.
            _log.info("%s: how transaction %s stands is not known, it is believed: %r", participant, txn_id, error)
            return Standing.TAKING

    async def ask_standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """As :class:`Registrations` says."""
        found = await self._own_or_over(txn_id, participant)
        return await self._standing_elsewhere(txn_id, participant) if found is None else found

    async def _own_or_over(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing | None:
        """Of a coordinator that is here, or that the cluster has not; None: another broker may have it."""
        try:
            return await self.own_standing(txn_id, participant)
        except TransactionCoordinatorNotFoundError:
            return Standing.OVER if txn_id.coordinator >= await self._count() else None

    async def _standing_elsewhere(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        found = None if self._elsewhere is None else await self._elsewhere.ask(txn_id, participant)
        return Standing.TAKING if found is None else found

    async def own_standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """Of a coordinator that is here. Raises TransactionCoordinatorNotFoundError, GemingaError."""
        return (await self.own_standings(txn_id.coordinator, [(txn_id.number, participant)]))[0]

    async def own_standings(self, number: int, asked: Sequence[tuple[int, str | TxnSubscription]]) -> list[Standing]:
        """The same of several of its transactions, by their numbers."""
        coordinator = await self.find(number)
        found = [coordinator.state.standing(TxnId(number, one), participant) for one, participant in asked]
        if Standing.OVER in found or Standing.UNTOLD in found:
            # What is held will be aborted, or what comes is refused. A broker that has the log now may have begun the
            # transaction, and been told.
            await coordinator.claim()
        return found

    async def find_used(self, number: int) -> TransactionCoordinator | None:
        """The coordinator if anybody ever began a transaction with it; none is made. Raises as :meth:`find`."""
        known = self._open.get(number)
        if known is None and 0 <= number < await self._count() and await self._ledgers.exists(log_name(number)):
            known = await self.find(number)
        return known

    def described(self, txn_id: TxnId) -> str:
        """What is known here of a transaction, as the end of a sentence; empty: nothing."""
        coordinator = self._open.get(txn_id.coordinator)
        transaction = coordinator.state.open.get(txn_id.number) if coordinator is not None else None
        if transaction is None:
            return ""
        owner = f", {transaction.owner} began it" if transaction.owner is not None else ""
        left_s = (transaction.deadline_ms - self._runtime.clock.wall_ms()) / 1000
        ends = f", it times out in {left_s:.1f} s" if left_s > 0 and not transaction.status.is_ending else ""
        return f": it is {transaction.status.name}{owner}{ends}"

    async def count(self) -> int:
        """How many the cluster has. Raises GemingaError."""
        return await self._count()

    @property
    def open(self) -> dict[int, TransactionCoordinator]:
        """Those that are open, by number."""
        return self._open

    async def _opened(self, number: int) -> TransactionCoordinator:
        ledger = await self._ledgers.open(log_name(number))
        ledger.tenure.part = self._part
        ledger.trimmer.set_retention(retention_ms=0, retention_bytes=0)

        def lost(error: GemingaError) -> None:
            _log.warning("transaction coordinator %d lost its log, and is opened anew: %s", number, error)
            if self._open.get(number) is coordinator:
                del self._open[number], self._logs[number]
            spawn(ledger.close(is_broken=True), name=f"close the log of coordinator {number}", part=self._part)
            self._resting.add(number)
            self._again(number, REOPEN_FIRST_MS)

        try:
            log = await LedgerRecordLog.open(ledger, TRANSACTION_LOG_CURSOR, self._part)
            coordinator = TransactionCoordinator(
                number,
                log,
                self._participants,
                clock=self._runtime.clock,
                rng=self._runtime.rng,
                config=self._config,
                part=self._part,
                lost=lost,
            )
            await coordinator.recover()
        except GemingaError:
            # By the next time another broker may have had it: what is open would be out of date then.
            await ledger.close(is_broken=True)
            raise
        self._open[number], self._logs[number] = coordinator, ledger
        return coordinator

    def _again(self, number: int, delay_ms: int) -> None:
        if not self._is_closed:
            spawn(self._open_later(number, delay_ms), name=f"open coordinator {number}", part=self._part)

    async def _open_later(self, number: int, delay_ms: int) -> None:
        await wait_ms(delay_ms)
        self._resting.discard(number)
        try:
            await self.find(number)
        except TransactionCoordinatorNotFoundError:
            return  # another broker has it
        except GemingaError as error:
            _log.warning("transaction coordinator %d can not be opened now: %s", number, error)
            self._again(number, min(2 * delay_ms, REOPEN_MAX_MS))
