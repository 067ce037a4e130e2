"""A transaction as its client keeps it: its state, what is under way in it, what it is registered with, how it ends.

====================== ======================================================================================
what                   rule
====================== ======================================================================================
an operation           begins only while the transaction is OPEN, and counts until it is settled
a target               a topic partition it sends to, or a subscription it acknowledges in; the coordinator is told
                       of each once, before anything goes there: who comes meanwhile shares the question
ahead                  what takes the way that the question took, behind it, needs not wait for the answer; the
                       question is an operation then: a transaction that the coordinator did not tell is not committed
detaching              as a commit up to the end, which is somebody else's; with a failed operation it becomes an abort
the end                is asked for once nothing is under way; a commit with a failed operation becomes an abort
its time               one that nobody ended until it is over is aborted by its coordinator
its answer             done, refused, forgotten or lost: :data:`AFTER` says which state follows
====================== ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Final

from geminga.model.errors import invariant
from geminga.model.txn_id import TxnId

#: Partitions and subscriptions of one transaction.
TARGETS_MAX: Final = 100_000


class TransactionState(Enum):
    """Where a transaction stands, with the names of the Java client."""

    #: Takes messages and acknowledgments.
    OPEN = "open"
    #: ``commit`` was called; its outcome is not known yet.
    COMMITTING = "committing"
    #: ``abort`` was called, or a commit found that something had failed.
    ABORTING = "aborting"
    #: Everything in it counts.
    COMMITTED = "committed"
    #: Nothing in it counts.
    ABORTED = "aborted"
    #: The coordinator refused the end, or does not know the transaction.
    ERROR = "error"
    #: ``detach`` was called: somebody else ends it, by its id.
    DETACHED = "detached"
    #: It was open for longer than its timeout: the coordinator aborts it.
    TIMED_OUT = "timed out"


class Answer(Enum):
    """What the coordinator says to the end of a transaction."""

    DONE = auto()
    #: It has ended the other way.
    REFUSED = auto()
    #: The coordinator does not know it any more.
    FORGOTTEN = auto()
    #: No answer in time: it may be asked again.
    LOST = auto()


_OPEN, _COMMITTING, _ABORTING = TransactionState.OPEN, TransactionState.COMMITTING, TransactionState.ABORTING
#: What follows an answer. Nobody but its client commits a transaction: one that is forgotten and was only to be aborted
#: is aborted.
AFTER: Final = {
    (_COMMITTING, Answer.DONE): TransactionState.COMMITTED,
    (_COMMITTING, Answer.REFUSED): TransactionState.ERROR,
    (_COMMITTING, Answer.FORGOTTEN): TransactionState.ERROR,
    (_COMMITTING, Answer.LOST): _COMMITTING,
    (_ABORTING, Answer.DONE): TransactionState.ABORTED,
    (_ABORTING, Answer.REFUSED): TransactionState.ERROR,
    (_ABORTING, Answer.FORGOTTEN): TransactionState.ABORTED,
    (_ABORTING, Answer.LOST): _ABORTING,
}


class NotOpen(Exception):
    """The transaction takes nothing any more; the text says where it stands."""


class TooManyTargets(Exception):
    """:data:`TARGETS_MAX` partitions and subscriptions are in the transaction."""


Target = Hashable
#: Hears that a target is registered (None), or why it is not.
OnRegistered = Callable[[Exception | None], None]


class TransactionCore:
    """See the module. ``ask`` has the coordinator told of a target; the answer comes to :meth:`registered`."""

    __slots__ = (
        "_ahead",
        "_ask",
        "_ask_ahead",
        "_asked",
        "_deadline_s",
        "_idle",
        "_on_over",
        "_registered",
        "_state",
        "_to_flush",
        "failure",
        "is_left",
        "is_over",
        "pending",
        "txn_id",
        "was_to_commit",
    )

    def __init__(
        self,
        txn_id: TxnId,
        deadline_s: float,
        ask: Callable[[Target], None],
        ask_ahead: Callable[[Target, object], bool] = lambda _target, _way: False,
        is_left: Callable[[], bool] = lambda: False,
    ) -> None:
        """``deadline_s``: monotonic seconds at which it times out; ``ask_ahead``: as ``ask``, over a way that who asks
        goes himself; False: that is no way to the coordinator, and it was not told; ``is_left``: see the attribute."""
        self.txn_id = txn_id
        #: Whether the client went on with another cluster, where the id names another transaction or none.
        self.is_left = is_left
        #: Operations that are not settled.
        self.pending = 0
        #: The first of them that failed.
        self.failure: Exception | None = None
        #: ``commit`` was called.
        self.was_to_commit = False
        #: How it ended is known: nothing of it counts any more that was not there before.
        self.is_over = False
        self._deadline_s = deadline_s
        self._state = TransactionState.OPEN
        self._ask = ask
        self._ask_ahead = ask_ahead
        #: Targets of which it was told ahead -> the way.
        self._ahead: dict[Target, object] = {}
        self._registered: set[Target] = set()
        #: Targets the coordinator was asked about -> who waits.
        self._asked: dict[Target, list[OnRegistered]] = {}
        #: Called with the end: what gathers parts of the transaction (open batches) sends them now.
        self._to_flush: dict[Callable[[], None], None] = {}
        #: Hear whether it was committed.
        self._on_over: list[Callable[[bool], None]] = []
        #: Called once nothing is under way; None: nobody waits.
        self._idle: Callable[[], None] | None = None

    # ---- operations

    def state(self, now_s: float) -> TransactionState:
        """Where it stands."""
        if self._state is _OPEN and now_s >= self._deadline_s:
            self._state = TransactionState.TIMED_OUT
        return self._state

    def begin(self, now_s: float) -> None:
        """An operation begins; raises NotOpen."""
        self.check_open(now_s)
        self.pending += 1

    def is_open(self, now_s: float) -> bool:
        """Whether it takes operations."""
        return self._state is _OPEN and now_s < self._deadline_s

    def check_open(self, now_s: float) -> None:
        """Raise NotOpen."""
        state = self.state(now_s)
        if state is not _OPEN:
            raise NotOpen(f"the transaction {self.txn_id} is not open: {state.value}")

    def join(self) -> None:
        """A part of an operation that has begun is settled for itself."""
        self.pending += 1

    def settle(self, error: Exception | None) -> None:
        """An operation, or a part of one, is over."""
        self.pending -= 1
        if error is not None:
            self.fail(error)
        if self.pending > 0:
            return
        invariant(not self.pending, "an operation of a transaction was settled twice")
        if self._idle is not None:
            idle, self._idle = self._idle, None
            idle()

    def fail(self, error: Exception) -> None:
        """Something of it failed: it can not be committed."""
        if self.failure is None:
            self.failure = error

    def flush_at_end(self, flush: Callable[[], None]) -> None:
        """``flush`` sends what it gathers for this transaction; called when it is to end."""
        self._to_flush[flush] = None

    def when_over(self, hear: Callable[[bool], None]) -> None:
        """``hear`` whether it was committed, once that is known; at once, where it is."""
        if self.is_over:
            hear(self._state is TransactionState.COMMITTED)
        else:
            self._on_over.append(hear)

    def _over(self) -> None:
        self.is_over = True
        hearers, self._on_over = self._on_over, []
        for hear in hearers:
            hear(self._state is TransactionState.COMMITTED)

    def time_is_over(self) -> None:
        """Its deadline has come: if nobody ended it, its coordinator aborts it."""
        if self.state(self._deadline_s) is TransactionState.TIMED_OUT and not self.is_over:
            self._over()

    # ---- targets

    def is_registered(self, target: Target) -> bool:
        """Whether the coordinator knows the target."""
        return target in self._registered

    def want(self, target: Target, on_registered: OnRegistered) -> bool:
        """True: the target is registered. Else ``on_registered`` hears of it, once. Raises TooManyTargets."""
        if target in self._registered:
            return True
        waiting = self._asked.get(target)
        if waiting is not None:
            waiting.append(on_registered)
            return False
        if len(self._registered) + len(self._asked) >= TARGETS_MAX:
            raise TooManyTargets(f"{TARGETS_MAX} partitions and subscriptions are in the transaction {self.txn_id}")
        self._asked[target] = [on_registered]
        self._ask(target)
        return False

    def want_ahead(self, target: Target, way: object, on_registered: OnRegistered) -> bool:
        """True: what takes ``way`` from now on comes behind the question, and ``on_registered`` hears the answer, once.
        False: :meth:`want` it."""
        waiting = self._asked.get(target)
        if waiting is None:
            if target in self._registered or len(self._registered) + len(self._asked) >= TARGETS_MAX:
                return False
            if not self._ask_ahead(target, way):
                return False
            self._ahead[target] = way
            self._asked[target] = [on_registered]
            self.join()
            return True
        if self._ahead.get(target) is not way:
            return False
        waiting.append(on_registered)
        return True

    def registered(self, target: Target, error: Exception | None) -> None:
        """What the coordinator answered; after an error who wants the target next asks again."""
        waiting = self._asked.pop(target, [])
        was_ahead = self._ahead.pop(target, None) is not None
        if error is None:
            self._registered.add(target)
        for hear in waiting:
            hear(error)
        if was_ahead:
            self.settle(error)

    # ---- the end

    def end(self, now_s: float, *, commit: bool) -> None:
        """It is to end, and takes nothing any more; again, the same way, while the answer is not known: fine.

        Raises NotOpen.
        """
        wanted = _COMMITTING if commit else _ABORTING
        if self.state(now_s) is not wanted:
            self.check_open(now_s)
            self._state = wanted
            self.was_to_commit = commit
        to_flush, self._to_flush = self._to_flush, {}
        for flush in to_flush:
            flush()

    def detach(self, now_s: float) -> None:
        """It takes nothing any more, and its end is not this client's, unless something fails. Raises NotOpen."""
        self.check_open(now_s)
        self._state = TransactionState.DETACHED
        to_flush, self._to_flush = self._to_flush, {}
        for flush in to_flush:
            flush()

    @property
    def has_acknowledgments(self) -> bool:
        """Whether consumers wait to hear of its end."""
        return bool(self._on_over)

    def when_idle(self, idle: Callable[[], None]) -> bool:
        """True: nothing is under way. Else ``idle`` is called when that is so."""
        if self.pending:
            self._idle = idle
            return False
        return True

    def decide(self) -> bool:
        """Whether to commit. A commit with a failure, or with anything still under way, becomes an abort."""
        if self._is_good_so_far and (self.failure is not None or self.pending):
            self._state = _ABORTING
        return self._state is _COMMITTING

    @property
    def _is_good_so_far(self) -> bool:
        return self._state in (_COMMITTING, TransactionState.DETACHED)

    @property
    def is_detached(self) -> bool:
        """Whether its end is somebody else's."""
        return self._state is TransactionState.DETACHED

    def answered(self, answer: Answer) -> TransactionState:
        """The coordinator's answer to the end; the state that follows."""
        before, self._state = self._state, AFTER[self._state, answer]
        if self._state is not before:
            self._over()
        return self._state
