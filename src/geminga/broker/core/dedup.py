"""Deduplication of publishes: which sequence ids of each producer are stored, and which are on their way.

Per producer name two numbers: the highest sequence id *pushed* (handed to the managed ledger) and the highest
*persisted*. A message at or below persisted is a duplicate; above pushed it is new; in between the answer is
not known yet, and never rounded to "duplicate": acknowledging it would lose it if the write fails.

A batch whose first id is stored and whose last is not is neither: called a duplicate its new messages would be lost,
stored again its old ones would be there twice. It is refused (apache/pulsar#6273 acknowledges it).

Producers that are gone are remembered for a time, the longest gone are forgotten first.

What a transaction published counts only if it is committed: its numbers, and those of aborted ones, are kept apart
(:mod:`.dedup_runs`). What is sent again in the same transaction is a duplicate; while the transaction is open another
one's message with these numbers is refused, for nobody knows yet; after an abort it is new.

After a failed write nothing in between is certain until the topic's tail was read again: from
:meth:`begin_settling` to :meth:`settled` every message at hand is unknown.

A replay may come upon a *hole*, entries that can not be read (:meth:`holed`). Sequence ids ascend, so a producer that
is found behind it is known all the same. Of every other one nobody knows what the hole has: what is at or below its
highest known id is a duplicate, all else is unknown, until the hole is read or given up and the topic loaded anew. Only
a name that was just made can not be in it (:meth:`made_name`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from geminga.broker.core.dedup_runs import SequenceRuns
from geminga.model.errors import invariant
from geminga.model.txn_id import TxnId

#: Other clusters of whose replicators a topic remembers how far they are. They are never forgotten, and whoever may
#: publish may say that he carries messages of one.
SOURCES_MAX: Final = 1000
#: Bytes of the name by which one counts; longer ones are of no cluster.
SOURCE_NAME_BYTES_MAX: Final = 512
#: Bytes of a snapshot. It is one entry, and no bookie takes one that is larger than a message may be.
SNAPSHOT_BYTES_MAX: Final = 4 * 1024 * 1024
#: What a producer takes in it beside its name.
_SAVED_BYTES: Final = 24
#: Said to a producer whose message can not be judged now; it reconnects and sends again.
UNKNOWN_TEXT: Final = "Cannot determine whether the message is a duplicate at this time"


class Verdict(Enum):
    """What is known of a message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    #: A batch that begins with messages that are stored and ends with others.
    MIXED = "mixed"
    #: Published by another transaction, which is open: nobody knows whether it counts.
    HELD = "held"


class Deduplication:
    """The sequence ids of one topic's producers."""

    __slots__ = (
        "_found",
        "_gone_since_ms",
        "_is_settling",
        "_may_be_aborted",
        "_persisted",
        "_pushed",
        "_sources",
        "_unsure",
        "runs",
    )

    def __init__(self) -> None:
        #: Highest sequence id handed to the ledger, by producer name. Invariant: never below persisted.
        self._pushed: dict[str, int] = {}
        #: Highest sequence id on stable storage, by producer name.
        self._persisted: dict[str, int] = {}
        #: When each producer that is not connected left, wall-clock milliseconds; the longest gone first.
        self._gone_since_ms: dict[str, int] = {}
        self._is_settling = False
        self._sources: set[str] = set()
        #: Numbers at or below the highest stored one that are not stored for good.
        self.runs = SequenceRuns()
        #: Producers that are known to have nothing newer in a hole; None: there is none.
        self._found: set[str] | None = None
        self._may_be_aborted = False
        #: Ids of producers, first and last, that may be in a hole, in a transaction that was aborted.
        self._unsure: dict[str, tuple[int, int]] = {}

    @property
    def is_settling(self) -> bool:
        """Whether a failed write is still being looked into."""
        return self._is_settling

    @property
    def persisted(self) -> Mapping[str, int]:
        """Highest stored sequence id of each producer."""
        return self._persisted

    def published(
        self, producer_name: str, sequence_id: int, highest_sequence_id: int, txn_id: TxnId | None = None
    ) -> Verdict:
        """Judge a message about to be stored; if accepted, it counts as pushed.

        ``highest_sequence_id`` is that of the batch's last message, or at most ``sequence_id`` without one.
        ``txn_id``: published in this transaction.
        """
        if self._is_settling or (
            self._found is not None and self._is_unsure(producer_name, sequence_id, highest_sequence_id)
        ):
            return Verdict.UNKNOWN
        pushed = self._pushed.get(producer_name, -1)
        if sequence_id <= pushed:
            if producer_name in self.runs:
                verdict = self.judged(producer_name, sequence_id, highest_sequence_id, txn_id)
                if verdict is Verdict.ACCEPTED:
                    self.runs.coming(producer_name, sequence_id, highest_sequence_id)
                    self._pushed[producer_name] = max(pushed, highest_sequence_id)
                return verdict
            if sequence_id <= self._persisted.get(producer_name, -1):
                persisted = self._persisted[producer_name]
                return Verdict.DUPLICATE if highest_sequence_id <= persisted else Verdict.MIXED
            return Verdict.UNKNOWN
        self._pushed[producer_name] = max(sequence_id, highest_sequence_id)
        return Verdict.ACCEPTED

    def judged(self, producer_name: str, sequence_id: int, highest_sequence_id: int, txn_id: TxnId | None) -> Verdict:
        """What is known of a message, which is not taken up by that."""
        if self._found is not None and self._is_unsure(producer_name, sequence_id, highest_sequence_id):
            return Verdict.UNKNOWN
        persisted, last = self._persisted.get(producer_name, -1), max(sequence_id, highest_sequence_id)
        count = max(0, min(last, persisted) - sequence_id + 1)
        free = 0
        for run in self.runs.within(producer_name, sequence_id, min(last, persisted)):
            if run.is_coming:
                return Verdict.UNKNOWN
            if run.is_free:
                free += min(last, run.last) - max(sequence_id, run.first) + 1
            elif run.txn_id != txn_id:
                return Verdict.HELD
        if free < count:
            # Some are stored.
            return Verdict.MIXED if free or last > persisted else Verdict.DUPLICATE
        above = max(sequence_id, persisted + 1)
        return Verdict.UNKNOWN if above <= min(last, self._pushed.get(producer_name, -1)) else Verdict.ACCEPTED

    def stored_in(self, producer_name: str, sequence_id: int, highest_sequence_id: int, txn_id: TxnId | None) -> None:
        """As :meth:`stored`, of a message that a transaction published, or whose producer has numbers in runs."""
        before = self._persisted.get(producer_name, -1)
        self._find(producer_name, sequence_id, before)
        self.runs.stored(producer_name, sequence_id, max(sequence_id, highest_sequence_id), txn_id, before)
        self.stored(producer_name, max(sequence_id, highest_sequence_id))

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """What it published is stored for good, or as if it had never been; once more is the same as once."""
        for name in self.runs.ended(txn_id, is_committed=is_committed):
            self._sink(name)

    def _sink(self, name: str) -> None:
        """The highest stored number is not a free one, so that the producer learns where it really is."""
        persisted = self._persisted.get(name, -1)
        if persisted != self._pushed.get(name, -1):
            return
        highest = self.runs.top(name, persisted)
        if highest >= 0:
            self._persisted[name] = self._pushed[name] = highest
        elif persisted >= 0:
            del self._persisted[name], self._pushed[name]

    def stored(self, producer_name: str, highest_sequence_id: int) -> None:
        """An entry of this producer is on stable storage (or was found there by a replay)."""
        if highest_sequence_id > self._persisted.get(producer_name, -1):
            self._persisted[producer_name] = highest_sequence_id
        if highest_sequence_id > self._pushed.get(producer_name, -1):
            self._pushed[producer_name] = highest_sequence_id

    # ---- holes

    def holed(self, *, has_transactions: bool) -> None:
        """The next entries of a replay can not be read: whoever is not found behind them may be in them.

        ``has_transactions``: some of them may be of one that was aborted.
        """
        self._found = set()
        self._may_be_aborted = self._may_be_aborted or has_transactions

    def made_name(self, producer_name: str) -> None:
        """Nobody had this name before."""
        if self._found is not None:
            self._found.add(producer_name)

    @property
    def has_holes(self) -> bool:
        """Whether there are entries that could not be read."""
        return self._found is not None

    def is_in_doubt(self, producer_name: str) -> bool:
        """Whether a hole may have newer messages of the producer than any that is known."""
        return self._found is not None and producer_name not in self._found

    def _find(self, producer_name: str, first: int, before: int) -> None:
        """An entry behind the hole, if there is one; ``before``: what was known of its producer until then."""
        if self._found is None or producer_name in self._found:
            return
        self._found.add(producer_name)
        if self._may_be_aborted and first > before + 1:
            known = self._unsure.get(producer_name)
            self._unsure[producer_name] = (before + 1 if known is None else known[0], first - 1)

    def _is_unsure(self, producer_name: str, first: int, highest: int) -> bool:
        """Whether a hole may say something else of a message with these ids."""
        last = max(first, highest)
        if self.is_in_doubt(producer_name) and last > self._persisted.get(producer_name, -1):
            return True
        span = self._unsure.get(producer_name)
        return span is not None and first <= span[1] and last >= span[0]

    def begin_settling(self) -> None:
        """A write failed: what was pushed and not persisted may or may not be stored."""
        self._is_settling = True

    def settled(self) -> None:
        """The topic's tail was read again through :meth:`stored`, with no write under way: persisted is the truth."""
        self._pushed = dict(self._persisted)
        # Who left with nothing stored has nothing to be remembered.
        self.runs.settled()
        for name in {name for name, _ in self.runs}:
            self._sink(name)
        self._gone_since_ms = {name: since for name, since in self._gone_since_ms.items() if self._remembers(name)}
        self._is_settling = False

    def is_known(self, producer_name: str) -> bool:
        """Whether nothing of the producer is being written or looked into: its last sequence id is the truth."""
        if self._is_settling:
            return False
        return self._pushed.get(producer_name, -1) == self._persisted.get(producer_name, -1)

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest stored sequence id of a producer, -1 if it has none: what it learns when it connects."""
        return self._persisted.get(producer_name, -1)

    # ---- who is there

    def takes_source(self, name: str) -> bool:
        """Whether another cluster's entries are judged by where they were stored there; ``name`` is what they count by.

        Not so of one that came when there were :data:`SOURCES_MAX`: what it sends twice is there twice.
        """
        if name in self._sources:
            return True
        if len(self._sources) >= SOURCES_MAX or len(name.encode()) > SOURCE_NAME_BYTES_MAX:
            return False
        self._sources.add(name)
        return True

    def forget_source(self, name: str) -> int:
        """Take another cluster's next entry, wherever it was stored there; what was known. The name must be known
        (:meth:`is_known`): what is being written would count again."""
        invariant(self.is_known(name), f"{name} is forgotten while entries of it are written")
        number = self._persisted.pop(name)
        del self._pushed[name]
        self._sources.discard(name)
        return number

    def _remembers(self, producer_name: str) -> bool:
        return producer_name in self._pushed or producer_name in self.runs

    def connected(self, producer_name: str) -> None:
        """The producer is there: it is remembered as long as it stays."""
        self._gone_since_ms.pop(producer_name, None)

    def gone(self, producer_name: str, now_ms: int) -> None:
        """The producer left."""
        if self._remembers(producer_name):
            self._gone_since_ms.pop(producer_name, None)
            self._gone_since_ms[producer_name] = now_ms

    def forget_inactive(self, before_ms: int) -> int:
        """Forget producers that left before ``before_ms``; how many they were."""
        forgotten = 0
        for name, since_ms in list(self._gone_since_ms.items()):
            if since_ms >= before_ms:
                break
            # What is being written still counts.
            if self._pushed.get(name, -1) == self._persisted.get(name, -1):
                del self._gone_since_ms[name]
                self._pushed.pop(name, None)
                self._persisted.pop(name, None)
                self.runs.forget(name)
                forgotten += 1
        return forgotten

    def snapshot(self, producers_max: int) -> dict[str, int]:
        """Stored ids of every producer that is there and of those gone last, together at most ``producers_max`` and
        :data:`SNAPSHOT_BYTES_MAX`.

        Those that are there are never left out, however many they are.
        """
        size_bytes = sum(map(_saved_bytes, self._persisted))
        left_out, out = len(self._persisted) - producers_max, set[str]()
        for name in self._gone_since_ms:
            if len(out) >= left_out and size_bytes <= SNAPSHOT_BYTES_MAX:
                break
            # Of who is gone without anything stored there is nothing to leave out.
            if name in self._persisted:
                out.add(name)
                size_bytes -= _saved_bytes(name)
        return {name: sequence_id for name, sequence_id in self._persisted.items() if name not in out}

    def check_invariants(self) -> None:
        """Raise InvariantError if pushed is behind persisted anywhere, or who is gone has nothing to be remembered."""
        invariant(all(map(self._remembers, self._gone_since_ms)), "a producer is gone that never pushed")
        for name, persisted in sorted(self._persisted.items()):
            invariant(
                self._pushed.get(name, -1) >= persisted,
                f"producer {name}: pushed {self._pushed.get(name)} is behind persisted {persisted}",
            )


def _saved_bytes(name: str) -> int:
    return len(name.encode()) + _SAVED_BYTES
