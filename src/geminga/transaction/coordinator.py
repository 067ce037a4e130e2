"""A transaction coordinator: stores what :mod:`.core.coordinator` decides, and tells participants how it ended.

One coordinator is one partition of ``transaction_coordinator_assign`` and belongs to the broker that serves it. All it
knows is in its log; whoever opens that next goes on. A record that may or may not be stored ends this coordinator: who
made it is told, and opening it anew tells what is so.

An end is decided by one stored record. From then on participants are told, each again and again until it heard, without
limit: what is decided must come true everywhere (a limit would leave topics held back for good).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from geminga.model.errors import (
    GemingaError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    TransactionCoordinatorNotFoundError,
    TransactionNotFoundError,
    UnavailableError,
    invariant,
)
from geminga.model.histogram import Histogram
from geminga.model.position import Position
from geminga.model.txn_id import TxnId, TxnStatus, TxnSubscription
from geminga.runtime import Clock, Part, Rng, again, answer_of, get_logger, spawn, value_of
from geminga.transaction.core.coordinator import CoordinatorState, Transaction
from geminga.transaction.core.shared_entries import SharedEntries
from geminga.transaction.ports import Participants, RecordLog
from geminga.transaction.reserved_numbers import NUMBER_PROPERTY, ReservedNumbers
from geminga.transaction.turns import Turns
from geminga.wire.pulsar.transaction_log import (
    TransactionRecord,
    decode_transaction_records,
    encode_transaction_record,
)

_log = get_logger(__name__)

#: Transactions whose time is up that are ended before others have their turn.
DUE_AT_ONCE: Final = 100
#: ... whose ends are being stored; the next are ended when some of these are.
TIMING_OUT_MAX: Final = 1_000
#: Milliseconds until it is looked again whether some are.
TIMING_OUT_AGAIN_MS: Final = 10
#: Bounds of how long transactions take, as Pulsar tells it, ms.
EXECUTION_BOUNDS_MS: Final = (
    *(10, 20, 50, 100, 500, 1_000, 5_000, 15_000, 30_000, 60_000),
    *(300_000, 1_500_000, 3_000_000),
)
#: How often the clock is looked at, though nothing is due: it may be set.
LOOK_MS_MAX: Final = 10_000
#: Milliseconds between attempts to tell a participant: doubled from the first to the last.
RETRY_FIRST_MS: Final = 100
RETRY_MAX_MS: Final = 10_000


#: Hears that something is stored (None), or the error.
Done = Callable[[GemingaError | None], None]


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Limits of a coordinator."""

    #: Transactions at a time; 0: no limit.
    active_max: int = 0
    #: The longest time a client may ask for, which is how long it can hold a topic back.
    timeout_max_ms: int = 86_400_000


class CoordinatorStats(NamedTuple):
    """Counts since it was opened, and what is so now."""

    begun: int
    committed: int
    aborted: int
    timed_out: int
    active: int
    last_number: int
    low_watermark: int
    #: Records stored.
    appended: int = 0
    #: Ends that participants are being told.
    telling: int = 0


class TransactionCoordinator:
    """See the module. Made by :meth:`open`."""

    __slots__ = (
        "_appended",
        "_begun",
        "_clock",
        "_config",
        "_deciding",
        "_ending",
        "_is_closed",
        "_log",
        "_lost",
        "_numbers",
        "_part",
        "_participants",
        "_rng",
        "_shared",
        "_sleeping",
        "_timer",
        "_timer_ms",
        "_timing_out",
        "_turns",
        "execution_ms",
        "recovered_ms",
        "recovering_ms",
        "state",
    )

    def __init__(
        self,
        number: int,
        log: RecordLog,
        participants: Participants,
        *,
        clock: Clock,
        rng: Rng,
        config: CoordinatorConfig,
        part: Part,
        lost: Callable[[GemingaError], None],
    ) -> None:
        """Usable after :meth:`recover`.

        ``lost`` is called once, when nobody knows what its log holds: it has stopped, and must be opened anew.
        """
        self._log = log
        self._lost = lost
        self._participants = participants
        self._clock = clock
        self._rng = rng
        self._config = config
        self._part = part
        self.state = CoordinatorState(
            number,
            last_number=int(log.properties.get(NUMBER_PROPERTY, "-1")),
            active_max=config.active_max,
            timeout_max_ms=config.timeout_max_ms,
        )
        self._numbers = ReservedNumbers(log, self.state)
        #: While an end is being stored, who waits for that, by number.
        self._deciding: dict[int, list[Done]] = {}
        #: Until every participant has heard, by number.
        self._ending: dict[int, asyncio.Future[GemingaError | None]] = {}
        self._turns = Turns()
        #: Pauses between attempts, over when it stops. An attempt itself goes on: what it stores must be known there.
        self._sleeping: dict[asyncio.Future[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: The deadline that the timer is for, ms since the epoch.
        self._timer_ms = 0
        #: Transactions whose time is up and whose ends are being stored.
        self._timing_out = 0
        self._shared: SharedEntries[int] = SharedEntries()
        self._is_closed = False
        self._begun = self._appended = 0
        #: How long transactions took from their beginning until every participant had heard of the end.
        self.execution_ms = Histogram(EXECUTION_BOUNDS_MS)
        #: When its log began to be read, and had been read, ms since the epoch.
        self.recovering_ms = clock.wall_ms()
        self.recovered_ms = 0

    async def recover(self) -> None:
        """Read the log and go on where it ends. Raises StorageError (CorruptionError for a record that is none)."""
        await self._numbers.find()
        finished: list[tuple[int, Sequence[Position]]] = []

        def take(data: bytes, position: Position) -> None:
            records = decode_transaction_records(data)
            self._shared.add(record.txn_id.number for record in records)
            for record in records:
                number = record.txn_id.number
                is_known = number in self.state.open
                over = self.state.read_again(record, position)
                if over is not None:
                    finished.append((number, over.positions))
                elif not is_known and number not in self.state.open:
                    finished.append((number, [position]))  # its beginning is trimmed: it is over

        await self._log.replay(take)
        # Not before all that shares an entry is known.
        for each, positions in finished:
            self._delete(each, positions)
        self.recovered_ms = self._clock.wall_ms()
        for transaction in self.state.ending:
            self._tell_soon(transaction)
        self._arm()

    async def close(self) -> None:
        """Stop; what is decided goes on where it is opened next. Raises StorageError."""
        self.stop()
        await self._log.close()

    def stop(self) -> None:
        """As :meth:`close`, without saving anything: it broke, or another owner has it."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pause in self._sleeping:
            if not pause.done():
                pause.set_result(None)
        for ended in list(self._ending.values()):
            if not ended.done():
                ended.set_result(self._gone())

    # ---- what clients ask for

    async def begin(self, timeout_ms: int, owner: str | None = None) -> TxnId:
        """A new transaction, aborted by itself after ``timeout_ms``; at most the configured time.

        Hardly anybody waits for the disk: one of which a crash leaves nothing has nothing that it would have to end.
        Raises TooManyRequestsError, GemingaError.
        """
        self._check_open()
        await self._reserve_number()
        if self.has_numbers:
            return self.begin_now(timeout_ms, owner)
        reserved = self.state.reserved
        record = self._begin(timeout_ms, owner)

        def store(told: Done) -> None:
            def done(error: GemingaError | None) -> None:
                if error is None:
                    self._numbers.stored(reserved)
                told(error)

            self._store_now(record, done)

        await answer_of(store)
        return record.txn_id

    @property
    def has_numbers(self) -> bool:
        """Whether :meth:`begin_now` may be called: numbers are made sure of."""
        return self._numbers.are_there

    def begin_now(self, timeout_ms: int, owner: str | None = None) -> TxnId:
        """As :meth:`begin`, which waits for numbers; raises the same."""
        self._check_open()
        invariant(self.has_numbers, "a number is given that may be given again")
        record = self._begin(timeout_ms, owner)
        self._store_later(record)
        return record.txn_id

    def _begin(self, timeout_ms: int, owner: str | None) -> TransactionRecord:
        timeout_ms = min(max(0, timeout_ms), self._config.timeout_max_ms)
        record = self.state.begin(timeout_ms, self._clock.wall_ms(), owner)
        self._begun += 1
        self._arm()
        return record

    async def add_partitions(self, txn_id: TxnId, partitions: Iterable[str]) -> None:
        """It will publish to these topics. Raises TransactionNotFoundError, InvalidTxnStatusError, GemingaError."""
        self._check_open()
        record = self.state.add_partitions(txn_id, partitions, self._clock.wall_ms())
        if record is not None:
            await self._store(record)

    def add_partitions_now(self, txn_id: TxnId, partitions: Iterable[str], done: Done) -> None:
        """As :meth:`add_partitions`, which ``done`` hears of. From now on these topics may take messages of it: the
        record lies before that of any end. Raises what is wrong with it now."""
        self._check_open()
        record = self.state.add_partitions(txn_id, partitions, self._clock.wall_ms())
        if record is None:
            done(None)
        else:
            self._store_now(record, done)

    async def add_subscriptions(self, txn_id: TxnId, subscriptions: Iterable[TxnSubscription]) -> None:
        """It will acknowledge in these subscriptions. Raises as :meth:`add_partitions`."""
        self._check_open()
        record = self.state.add_subscriptions(txn_id, subscriptions, self._clock.wall_ms())
        if record is not None:
            await self._store(record)

    async def end(self, txn_id: TxnId, *, commit: bool) -> None:
        """Commit or abort; returns when every participant has heard.

        Raises TransactionNotFoundError (also: it is over), InvalidTxnStatusError (the other end), GemingaError.
        """
        self._check_open()
        try:
            await self._decided(txn_id, commit=commit)
        except TransactionNotFoundError:
            await self.claim()  # whoever owns the log now may have begun it
            raise
        ended = self._ending.get(txn_id.number)
        if ended is not None:
            error = await asyncio.shield(ended)
            del ended  # see runtime's value_of
            if error is not None:
                # Others are told of it, too.
                raise again(error)

    def end_now(self, txn_id: TxnId, *, commit: bool, done: Done) -> None:
        """As :meth:`end`, which ``done`` hears of. Raises what is wrong with it now; whether there is no such
        transaction only :meth:`end` can tell for certain."""
        self._check_open()

        def decided(error: GemingaError | None) -> None:
            ended = self._ending.get(txn_id.number) if error is None else None
            if ended is None:
                done(error)
            else:
                ended.add_done_callback(lambda ended: done(ended.result()))

        self._decide(txn_id, commit=commit, done=decided)

    async def claim(self) -> None:
        """Make sure that the log is still this one's, before it is said that there is nothing. Raises GemingaError."""
        self._check_open()
        try:
            await self._log.claim()
        except GemingaError as error:
            self._lose(error)
            raise

    async def abort_within(self, txn_id: TxnId, wait_s: float) -> bool:
        """Abort; whether all participants heard within that time. Raises as :meth:`end`.

        It goes on if they did not, and if who waits is cut off: between the log and what is known of it nothing may be.
        """
        outcome: list[GemingaError | None] = []

        async def end() -> None:
            try:
                await self.end(txn_id, commit=False)
            except GemingaError as error:
                outcome.append(error)
            else:
                outcome.append(None)

        await asyncio.wait([spawn(end(), name=f"abort {txn_id}", part=self._part)], timeout=wait_s)
        if not outcome:
            return False
        value_of(outcome.pop())
        return True

    # ---- inside

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._gone()

    def _gone(self) -> TransactionCoordinatorNotFoundError:
        return TransactionCoordinatorNotFoundError(
            f"Transaction coordinator with id {self.state.coordinator} is not served here now"
        )

    async def _reserve_number(self) -> None:
        try:
            await self._numbers.reserve()
        except GemingaError as error:
            self._lose(error)
            raise
        self._check_open()

    async def _store(self, record: TransactionRecord) -> None:
        try:
            position = await self._log.append(encode_transaction_record(record))
        except GemingaError as error:
            self._lose(error)
            raise _unknown(record.txn_id, error) from error
        self._stored(record, position)

    def _store_now(self, record: TransactionRecord, done: Done) -> None:
        """The same for who does not wait in a task."""

        def stored(result: Position | GemingaError) -> None:
            if isinstance(result, GemingaError):
                self._lose(result)
                done(_unknown(record.txn_id, result))
            else:
                self._stored(record, result)
                done(None)

        self._log.append_now(encode_transaction_record(record), stored)

    def _store_later(self, record: TransactionRecord) -> None:
        """The same for what nobody waits for: with the next record, or soon."""

        def done(result: Position | GemingaError) -> None:
            if isinstance(result, GemingaError):
                self._lose(result)
            else:
                self._stored(record, result)

        self._log.append_later(encode_transaction_record(record), done)

    def _stored(self, record: TransactionRecord, position: Position) -> None:
        self._appended += 1
        over = self.state.stored(record, position)
        if over is not None:
            self._delete(over.txn_id.number, over.positions)

    def _lose(self, error: GemingaError) -> None:
        if not self._is_closed:
            self.stop()
            self._lost(error)

    def _delete(self, number: int, positions: Sequence[Position]) -> None:
        """A transaction is over: nobody needs its records any more."""
        for each in self._shared.over(number, positions):
            self._log.delete(each)

    async def _decided(self, txn_id: TxnId, *, commit: bool) -> None:
        def decide(done: Done) -> None:
            self._decide(txn_id, commit=commit, done=done)

        await answer_of(decide)

    def _decide(self, txn_id: TxnId, *, commit: bool, done: Done) -> None:
        """Decide its end, and store that; ``done`` hears of it. Who wants the same end meanwhile hears with it.

        Raises what is wrong with it now.
        """
        record = self.state.end(txn_id, commit=commit, now_ms=self._clock.wall_ms())
        hearers = self._deciding.get(txn_id.number)
        if record is None:
            if hearers is None:
                done(None)
            else:
                hearers.append(done)
            return
        hearers = self._deciding[txn_id.number] = [done]

        def decided(error: GemingaError | None) -> None:
            del self._deciding[txn_id.number]
            if error is None and self._is_closed:
                error = self._gone()
            if error is None:
                self._tell_soon(self.state.find(txn_id))
            for hear in hearers:
                hear(error if error is None else again(error))

        self._store_now(record, decided)

    def _tell_soon(self, transaction: Transaction) -> None:
        number = transaction.txn_id.number
        self._ending[number] = asyncio.get_running_loop().create_future()
        self._start(self._tell_all(transaction), f"end transaction {transaction.txn_id}")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        spawn(work, name=name, part=self._part)

    async def _tell_all(self, transaction: Transaction) -> None:
        """Until every participant has heard."""
        commit = transaction.status is TxnStatus.COMMITTING
        tells = [
            *(self._tell_partition(transaction.txn_id, topic, commit) for topic in transaction.partitions),
            *(self._tell_subscription(transaction.txn_id, each, commit) for each in transaction.subscriptions),
        ]
        if len(tells) == 1:
            await tells[0]
        else:
            await asyncio.gather(*tells)
        if self._is_closed:
            return  # whoever opens the log next tells all of them again
        now_ms = self._clock.wall_ms()
        record = self.state.finish(transaction.txn_id, now_ms)
        if record is None:
            return
        self.execution_ms.add(now_ms - transaction.start_ms)
        # Decided is decided: what is lost of this record is that all have heard, and then they are told again.
        self._store_later(record)
        ended = self._ending.pop(transaction.txn_id.number)
        if not ended.done():
            ended.set_result(None)

    async def _tell_partition(self, txn_id: TxnId, topic: str, commit: bool) -> None:
        async def tell() -> None:
            await self._participants.end_on_partition(
                txn_id, topic, commit=commit, low_watermark=self.state.low_watermark
            )

        await self._until_heard(tell, txn_id, topic)

    async def _tell_subscription(self, txn_id: TxnId, subscription: TxnSubscription, commit: bool) -> None:
        async def tell() -> None:
            await self._participants.end_on_subscription(
                txn_id, subscription, commit=commit, low_watermark=self.state.low_watermark
            )

        await self._until_heard(tell, txn_id, f"{subscription.subscription} of {subscription.topic}")

    async def _until_heard(self, tell: Callable[[], Awaitable[None]], txn_id: TxnId, whom: str) -> None:
        delay_ms = RETRY_FIRST_MS
        while not self._is_closed:
            try:
                await self._turns.take(whom, tell)
                return
            except (TopicNotFoundError, SubscriptionNotFoundError):
                return  # deleted: nobody is left who could hear
            except GemingaError as error:
                if delay_ms == RETRY_MAX_MS:
                    _log.warning("transaction %s: %s has not heard of the end yet: %s", txn_id, whom, error)
            await self._pause(delay_ms - delay_ms * 0.1 * self._rng.random())
            delay_ms = min(2 * delay_ms, RETRY_MAX_MS)

    async def _pause(self, delay_ms: float) -> None:
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        pause: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(delay_ms / 1000, _end_pause, pause)
        self._sleeping[pause] = None
        try:
            await pause
        finally:
            timer.cancel()
            self._sleeping.pop(pause, None)

    # ---- time-outs

    def _arm(self, delay_min_ms: int = 0) -> None:
        deadline_ms = self.state.next_deadline_ms
        if deadline_ms is None or self._is_closed:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = min(max(delay_min_ms, deadline_ms - self._clock.wall_ms()), LOOK_MS_MAX)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        room = TIMING_OUT_MAX - self._timing_out
        for txn_id in self.state.due(self._clock.wall_ms(), min(room, DUE_AT_ONCE)):
            self._timing_out += 1
            self._start(self._time_out(txn_id), f"time out {txn_id}")
        self._arm(0 if self._timing_out < TIMING_OUT_MAX else TIMING_OUT_AGAIN_MS)

    async def _time_out(self, txn_id: TxnId) -> None:
        try:
            await self._decided(txn_id, commit=False)
        except GemingaError as error:
            # Its end is decided already, or this coordinator has ended, and the next one looks again.
            _log.debug("transaction %s did not time out: %s", txn_id, error)
        finally:
            self._timing_out -= 1

    # ---- questions

    @property
    def stats(self) -> CoordinatorStats:
        """See :class:`CoordinatorStats`."""
        state = self.state
        return CoordinatorStats(
            self._begun,
            state.committed,
            state.aborted,
            state.timed_out,
            state.active,
            state.last_number,
            state.low_watermark,
            self._appended,
            len(self._ending),
        )

    def owner(self, txn_id: TxnId) -> str | None:
        """Who began it; None: nobody said who it is. Raises TransactionNotFoundError."""
        return self.state.find(txn_id).owner

    def slow(self, longer_than_ms: int) -> Sequence[Transaction]:
        """Transactions that are open for longer than that."""
        now_ms = self._clock.wall_ms()
        return [each for each in self.state.open.values() if now_ms - each.start_ms > longer_than_ms]


def _unknown(txn_id: TxnId, error: GemingaError) -> UnavailableError:
    return UnavailableError(f"nobody knows whether transaction {txn_id} was changed: {error}")


def _end_pause(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
