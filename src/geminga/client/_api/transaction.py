"""``Transaction``: messages to any topics and acknowledgments of any subscriptions, all of which count, or none.

What is done in it is registered with its coordinator first, counted while it is under way, and looked at when it ends
(:mod:`geminga.client.rules.transaction`). Producers and consumers know the core of it; this is what users hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

from geminga.client._api.errors import (
    InvalidConfiguration,
    InvalidMessage,
    InvalidTxnStatusError,
    NotAllowedError,
    PulsarException,
    Timeout,
    TransactionNotFound,
    as_client_error,
)
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.opening import Opening
from geminga.client._api.place import Place
from geminga.client.rules.option_kinds import TIME_MS_MAX
from geminga.client.rules.transaction import (
    Answer,
    NotOpen,
    OnRegistered,
    Target,
    TooManyTargets,
    TransactionCore,
    TransactionState,
)
from geminga.model.txn_id import TxnId
from geminga.runtime import Clock, Raised, attempt_await, get_logger, spawn, value_of

_log = get_logger(__name__)
_MS: Final = 1000


class Coordination(Protocol):
    """Who keeps transactions: the coordinators."""

    @property
    def are_left(self) -> bool:
        """Whether the client went on with another cluster."""
        ...

    async def begin(self, timeout_ms: int) -> TxnId:
        """A new transaction; raises PulsarException."""
        ...

    async def add_partition(self, txn_id: TxnId, topic: str) -> None:
        """It publishes to a topic; raises PulsarException."""
        ...

    def tell_partition(self, txn_id: TxnId, topic: str, way: object) -> asyncio.Future[Any] | None:
        """As :meth:`add_partition`, asked once, if the connection ``way`` leads to its coordinator and what is written
        to it from now on may count on that; else None."""
        ...

    async def add_subscription(self, txn_id: TxnId, topic: str, subscription: str) -> None:
        """It acknowledges in a subscription; raises PulsarException."""
        ...

    async def end(self, txn_id: TxnId, *, commit: bool) -> tuple[Answer, PulsarException | None]:
        """It ends; what was answered, and the error."""
        ...


class Transaction:
    """Made by :meth:`Client.transaction`; given as ``txn=`` to what is to be done in it.

    ``async with`` commits it at the end, and aborts it if an exception (a cancellation, too) comes out of the block.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_coordination",
        "_deadline_s",
        "_ending",
        "_lifetime",
        "_timeout_s",
        "_timer",
        "core",
        "timeout_s",
    )

    def __init__(
        self,
        txn_id: TxnId,
        coordination: Coordination,
        lifetime: Lifetime,
        clock: Clock,
        *,
        began_s: float,
        timeout_s: float,
        patience_s: float,
    ) -> None:
        """``began_s``: before the coordinator was asked, so that it does not time out earlier than is known here;
        ``patience_s``: how long an abort waits for what is under way."""
        self._coordination = coordination
        self._lifetime = lifetime
        self._clock = clock
        self._deadline_s = began_s + timeout_s
        self._timeout_s = patience_s
        #: Seconds it may be open.
        self.timeout_s = timeout_s
        #: What producers and consumers go by.
        self.core = TransactionCore(txn_id, self._deadline_s, self._ask, self._ask_ahead, lambda: coordination.are_left)
        #: While it ends: the error of it, None if it did as it should.
        self._ending: asyncio.Task[PulsarException | None] | None = None
        lifetime.remember(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(self._deadline_s - clock.monotonic(), 0), self._on_deadline)

    @property
    def id(self) -> TxnId:
        """The coordinator and its number."""
        return self.core.txn_id

    @property
    def state(self) -> TransactionState:
        """Where it stands now."""
        return self.core.state(self._clock.monotonic())

    async def commit(self) -> None:
        """Wait for all that was sent and acknowledged in it, then let it count.

        If any of that failed, it is aborted and the error is raised: a part is never committed. Raises
        InvalidTxnStatusError if it is not open, or the coordinator aborted it (its timeout); TransactionNotFound if
        nobody knows how it ended; Timeout and the like if no coordinator answered within the operation timeout: it
        stays COMMITTING then, and ``commit`` may be called again. Goes on to its end also when the caller is cancelled.
        """
        await self._end(commit=True)

    async def abort(self) -> None:
        """Wait for all that was sent and acknowledged in it, then undo it: no message of it is ever seen, and what was
        acknowledged comes again. Raises as :meth:`commit` does, but not the errors of what was done in it."""
        await self._end(commit=False)

    async def detach(self) -> TxnId:
        """Wait for all that was sent in it, then leave its end to whoever has its id: see
        :meth:`Client.end_transaction`. Nobody does, and it is aborted when its timeout is over.

        If any of that failed, it is aborted and the error is raised, as :meth:`commit` does. What was acknowledged in
        it would wait for its end at this client: raises NotAllowedError.
        """
        self._check(self._lifetime.place)
        if self.core.has_acknowledgments:
            raise NotAllowedError(f"the transaction {self.id} has acknowledgments: its client has to end it")
        try:
            self.core.detach(self._clock.monotonic())
        except NotOpen as error:
            raise InvalidTxnStatusError(str(error)) from None
        self._ending = spawn(self._finish(), name=f"detach {self.id}")
        value_of(await _outcome(self._ending))
        return self.id

    async def close(self) -> None:
        """Abort it if it is open still; the client does so when it is closed. Raises what :meth:`abort` raises."""
        if self._ending is None and self.state is TransactionState.OPEN:
            self._start(commit=False)
        if self._ending is not None:
            await _outcome(self._ending)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = self.state
        if error is None:
            if state in (TransactionState.OPEN, TransactionState.COMMITTING, TransactionState.TIMED_OUT):
                await self._end(commit=True)
        elif state is TransactionState.OPEN:
            try:
                await self._end(commit=False)
            except PulsarException as failure:
                # The block's own error is what its caller wants to hear.
                _log.warning("transaction %s: %s", self.id, failure)

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state.value}>"

    # ---- for the client's own parts

    def begin(self, place: Place) -> TransactionCore:
        """Something begins in it, by a producer or consumer of ``place``; raises what :func:`begin_in` says."""
        self._check(place)
        if self.core.is_left():
            raise left_behind(self.core)
        try:
            self.core.begin(self._clock.monotonic())
        except NotOpen as error:
            raise InvalidTxnStatusError(str(error)) from None
        return self.core

    def check_takes(self, place: Place, now_s: float) -> TransactionCore:
        """As :meth:`begin`, for what is done within the call by who sees to process, client and cluster:
        nothing counts yet. ``now_s``: the clock's monotonic seconds."""
        if place is not self._lifetime.place:
            self._check(place)
        core = self.core
        if core.is_left():
            raise left_behind(core)
        if not core.is_open(now_s):
            try:
                core.check_open(now_s)
            except NotOpen as error:
                raise InvalidTxnStatusError(str(error)) from None
        return core

    def _check(self, place: Place) -> None:
        if place is not self._lifetime.place:
            place.check()
            raise NotAllowedError(f"the transaction {self.id} is another client's")
        self._lifetime.check_usable()

    async def _end(self, *, commit: bool) -> None:
        self._check(self._lifetime.place)
        if self._ending is None or not self._is_ending(commit=commit):
            self._start(commit=commit)
        assert self._ending is not None
        value_of(await _outcome(self._ending))

    def _is_ending(self, *, commit: bool) -> bool:
        wanted = TransactionState.COMMITTING if commit else TransactionState.ABORTING
        return self.state is wanted and self._ending is not None and not self._ending.done()

    def _start(self, *, commit: bool) -> None:
        try:
            self.core.end(self._clock.monotonic(), commit=commit)
        except NotOpen as error:
            raise InvalidTxnStatusError(str(error)) from None
        name = f"{'commit' if commit else 'abort'} {self.id}"
        self._ending = spawn(self._finish(), name=name)

    async def _finish(self) -> PulsarException | None:
        is_to_last = self.core.was_to_commit or self.core.is_detached
        await self._settled(is_patient=is_to_last)
        commit = self.core.decide()
        failure = self.core.failure
        if self.core.is_detached:
            self._forget()
            return None
        answer, error = await self._coordination.end(self.id, commit=commit)
        state = self.core.answered(answer)
        if answer is not Answer.LOST:
            self._forget()
        if is_to_last and not commit:
            if error is not None:
                _log.warning("transaction %s: it is to be aborted: %s", self.id, error)
            return as_client_error(cast("Exception", failure), f"in transaction {self.id}")
        if state is TransactionState.ERROR and answer is Answer.FORGOTTEN:
            return TransactionNotFound(
                f"its coordinator does not know the transaction {self.id} any more: nobody knows how it ended ({error})"
            )
        return None if state in (TransactionState.COMMITTED, TransactionState.ABORTED) else error

    async def _settled(self, *, is_patient: bool) -> None:
        """Until nothing is under way; a commit waits as long as the transaction lives, an abort has its patience."""
        core = self.core
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_idle() -> None:
            if not idle.done():
                idle.set_result(None)

        if core.when_idle(on_idle):
            return
        patience_s = self._deadline_s - self._clock.monotonic()
        if not is_patient:
            patience_s = min(patience_s, self._timeout_s)
        try:
            async with asyncio.timeout(max(patience_s, 0)):
                await idle
        except TimeoutError:
            core.fail(Timeout(f"{core.pending} sends and acknowledgments of {self.id} have no answer in its time"))

    def _ask(self, target: Target) -> None:
        spawn(self._register(target), name=f"register {target} with {self.id}")

    def _ask_ahead(self, target: Target, way: object) -> bool:
        told = self._coordination.tell_partition(self.id, cast("tuple[str, ...]", target)[0], way)
        if told is None:
            return False

        def heard(answer: asyncio.Future[Any]) -> None:
            error = answer.exception()
            if isinstance(error, PulsarException) and error.retriable:
                self._ask(target)
            else:
                self._has_registered(target, error)

        told.add_done_callback(heard)
        return True

    async def _register(self, target: Target) -> None:
        names = cast("tuple[str, ...]", target)
        coordination = self._coordination
        if len(names) == 1:
            told: Coroutine[Any, Any, None] = coordination.add_partition(self.id, names[0])
        else:
            told = coordination.add_subscription(self.id, names[0], names[1])
        outcome = await attempt_await(told)
        self._has_registered(target, outcome.error if isinstance(outcome, Raised) else None)

    def _has_registered(self, target: Target, error: BaseException | None) -> None:
        if error is not None:
            names = " ".join(cast("tuple[str, ...]", target))
            error = as_client_error(cast("Exception", error), f"registering {names} with transaction {self.id}")
        self.core.registered(target, error)

    def _on_deadline(self) -> None:
        self._forget()
        self.core.time_is_over()

    def _forget(self) -> None:
        """It is over, or timed out."""
        self._timer.cancel()
        self._lifetime.forget(self)


class OpeningTransaction(Opening[Transaction]):
    """To be awaited, or entered: then its end is the transaction's."""

    __slots__ = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(self._opened, Transaction):
            await self._opened.__aexit__(kind, error, traceback)


def begin_in(txn: object, place: Place) -> TransactionCore:
    """What was given as ``txn=``: something begins in it, which the caller settles.

    Raises InvalidMessage for what is no transaction, NotAllowedError for another client's, InvalidTxnStatusError for
    one that is not open, TransactionNotFound for one of a cluster that the client left, and what using its client would
    raise.
    """
    if not isinstance(txn, Transaction):
        raise InvalidMessage(f"txn={txn!r:.100}: expected a transaction, made by client.transaction()")
    return txn.begin(place)


def left_behind(core: TransactionCore) -> TransactionNotFound:
    """What is said of anything that would go to the new cluster with a former one's id."""
    return TransactionNotFound(
        f"the client went on with another cluster: the transaction {core.txn_id} belongs to the former"
    )


def refusal_of(core: TransactionCore) -> PulsarException | None:
    """Why nothing of it is sent any more; None: it is.

    A broker that does not ask the coordinator would take it, and hold back readers, or the message, for nobody.
    """
    if core.is_left():
        return left_behind(core)
    return InvalidTxnStatusError(f"the transaction {core.txn_id} is over: it was not sent") if core.is_over else None


def wanted(core: TransactionCore, target: Target, on_registered: OnRegistered) -> bool:
    """As :meth:`TransactionCore.want`; raises NotAllowedError."""
    try:
        return core.want(target, on_registered)
    except TooManyTargets as error:
        raise NotAllowedError(str(error)) from None


async def _outcome(ending: asyncio.Task[PulsarException | None]) -> PulsarException | None:
    """What an end comes to; it goes on if who waits is cut off (as with ``asyncio.shield``, at half the cost)."""
    if not ending.done():
        over: asyncio.Future[None] = ending.get_loop().create_future()

        def wake(_ending: object) -> None:
            if not over.done():
                over.set_result(None)

        ending.add_done_callback(wake)
        try:
            await over
        finally:
            ending.remove_done_callback(wake)
    return ending.result()


def milliseconds(name: str, given: object) -> int:
    """A time that is seconds or a timedelta; raises InvalidConfiguration."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0.001 <= cast("float", seconds) < TIME_MS_MAX / _MS:
        raise InvalidConfiguration(f"{name}={given!r:.100}: expected seconds or a timedelta, at least a millisecond")
    return int(cast("float", seconds) * _MS)


async def new_transaction(
    coordination: Coordination, lifetime: Lifetime, clock: Clock, timeout_ms: int, patience_s: float
) -> Transaction:
    """See :meth:`Client.transaction`; one that is never awaited warns by this name."""
    lifetime.check_usable()
    began_s = clock.monotonic()
    txn_id = await coordination.begin(timeout_ms)
    return Transaction(
        txn_id, coordination, lifetime, clock, began_s=began_s, timeout_s=timeout_ms / 1000, patience_s=patience_s
    )
