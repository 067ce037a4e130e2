"""When reads of a bookie are carried out, and their answers.

Reads of all connections take turns, one group a turn of the loop, a few groups at once: between two groups adds and
answers have their turn, however much is read. Fences, reads of the last entry and those of high priority do not wait
for others, only for their own client to take its answers; a long poll waits for the ledger's last add confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from geminga.bookie.core.read_turns import ReadTurns
from geminga.bookie.serving import limits
from geminga.bookie.serving.answering import as_bytes, batch_entries, lac_of, read_answer, read_refusal
from geminga.bookie.serving.long_polls import LongPolls
from geminga.bookie.serving.prompt_requests import PromptRequests
from geminga.model.bookie_port import IDS_END, Bookie, EntryData, LacResult
from geminga.model.errors import NoSuchEntryError, StorageError
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.codes import ENTRY_ID_LAST, VERSION_3, StatusCode, status_of_error
from geminga.wire.bookkeeper.digest import read_lac_ids
from geminga.wire.bookkeeper.requests import BatchReadRequest, EntryReadRequest, ListEntriesRequest, Request

#: Reads that wait for their turn.
QueuedRead: TypeAlias = EntryReadRequest | BatchReadRequest
_TOO_MANY: Final = StatusCode.ETOOMANYREQUESTS


class AskingConnection(Protocol):
    """What reads need of the connection that asked."""

    #: Those of its requests that wait for no turn.
    prompt: PromptRequests

    def __hash__(self) -> int:
        """Each is itself."""

    @property
    def is_gone(self) -> bool:
        """Nobody gets its answers."""

    @property
    def may_read(self) -> bool:
        """Whether a group of its reads may be carried out now."""

    def answer(self, request: Request, *parts: EntryData) -> None:
        """The answer of one request, in parts."""

    def take_turn(self, requests: Sequence[QueuedRead], done: Callable[[], None]) -> None:
        """Have a group carried out (:meth:`Reads.carry_out`); ``done`` when all are answered or wait again."""

    def dropped(self, count: int) -> None:
        """So many of its reads will not be answered."""


def group_key(request: QueuedRead) -> int | None:
    """Reads of one ledger make a group; a batch read is one by itself."""
    return request.ledger_id if isinstance(request, EntryReadRequest) else None


class Reads:
    """Those of all connections of one server."""

    def __init__(self, bookie: Bookie, polls: LongPolls, frame_bytes_max: int) -> None:
        self._bookie = bookie
        self._polls = polls
        self._frame_bytes_max = frame_bytes_max
        self._loop = asyncio.get_running_loop()
        self._turns: ReadTurns[AskingConnection, QueuedRead] = ReadTurns(
            group_key, group_max=limits.GROUP_READS_MAX, waiting_max=limits.READS_WAITING_MAX
        )
        #: Under way.
        self._groups = 0
        self._is_serve_due = False

    @property
    def waiting_count(self) -> int:
        """How many wait for their turn."""
        return len(self._turns)

    def forget(self, connection: AskingConnection) -> int:
        """It went: what it has waiting is dropped; how many reads those are."""
        return self._polls.forget(connection) + len(self._turns.forget(connection))

    def serve(self) -> None:
        """Carry out a group on the next turn of the loop, if one may be."""
        if not self._is_serve_due and self._groups < limits.GROUPS_MAX:
            self._is_serve_due = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_serve_due = False
        taken = self._turns.take(lambda connection: connection.may_read)
        if taken is None:
            return
        connection, group = taken
        self._groups += 1
        connection.take_turn(group, self._group_done)
        self.serve()

    def _group_done(self) -> None:
        self._groups -= 1
        self.serve()

    def begin(self, connection: AskingConnection, request: QueuedRead) -> None:
        """Carry it out, or let it wait: for its turn, or for a last add confirmed."""
        if request.fence:
            if request.master_key is None:
                connection.answer(request, read_refusal(request, StatusCode.EUA))
                return
            fenced = partial(self._fenced, connection, request)
            self._bookie.fence(request.ledger_id, master_key=request.master_key, done=fenced)
        elif isinstance(request, EntryReadRequest) and request.is_long_poll:
            self._begin_poll(connection, request)
        elif request.entry_id == ENTRY_ID_LAST or request.high_priority:
            self._read_now(connection, request)
        elif not self._turns.add(connection, request):
            connection.answer(request, read_refusal(request, _TOO_MANY))
        else:
            self.serve()

    def _fenced(self, connection: AskingConnection, request: QueuedRead, error: StorageError | None) -> None:
        if error is not None:
            connection.answer(request, read_refusal(request, status_of_error(error)))
        else:
            self._read_now(connection, request)

    def _read_now(self, connection: AskingConnection, request: QueuedRead) -> None:
        """Without waiting for the turns of others."""
        connection.prompt.begin(request, partial(self._carry_out_now, connection, request), prompt_cost(request))

    def _carry_out_now(self, connection: AskingConnection, request: QueuedRead) -> None:
        if request.entry_id == ENTRY_ID_LAST:
            self._bookie.read_lac(request.ledger_id, done=partial(self._have_last, connection, request))
        else:
            self.carry_out(connection, [request], lambda: None)

    def _have_last(self, connection: AskingConnection, request: QueuedRead, result: LacResult | StorageError) -> None:
        entry: bytes | StorageError
        if isinstance(result, StorageError):
            entry = result
        else:
            entry = result.last_entry or NoSuchEntryError("no entry yet")
        if isinstance(request, BatchReadRequest):
            self._have_batch(connection, request, [entry])
        else:
            lac = None if isinstance(entry, StorageError) else lac_of(entry)
            connection.answer(request, read_answer(request, entry, max_lac=lac))

    def carry_out(self, connection: AskingConnection, requests: Sequence[QueuedRead], done: Callable[[], None]) -> None:
        """Read for them: one batch read, or reads of one ledger."""
        first = requests[0]
        if isinstance(first, BatchReadRequest):
            count = limits.BATCH_ENTRIES_MAX
            if first.entries_max > 0:
                count = min(count, first.entries_max)
            ids = range(first.entry_id, min(first.entry_id + count, IDS_END))
            size = max(0, min(first.bytes_max, self._frame_bytes_max) - v2.BATCH_ANSWER_BYTES)
            batch_done = partial(self._have_batch, connection, first, done=done)
            self._bookie.read_entries(first.ledger_id, ids, batch_done, bytes_max=size)
            return
        reads = [request for request in requests if isinstance(request, EntryReadRequest)]
        entry_ids = [request.entry_id for request in reads]
        have = partial(self._have_entries, connection, reads, done)
        self._bookie.read_entries(first.ledger_id, entry_ids, have, bytes_max=limits.GROUP_BYTES_MAX)

    def _have_batch(
        self,
        connection: AskingConnection,
        request: BatchReadRequest,
        results: Sequence[EntryData | StorageError],
        done: Callable[[], None] | None = None,
    ) -> None:
        if isinstance(results[0], StorageError):
            answer: list[EntryData] = [read_refusal(request, status_of_error(results[0]))]
        else:
            room = min(request.bytes_max, self._frame_bytes_max)
            answer = v2.batch_read_answer_parts(request, StatusCode.EOK, batch_entries(request, results, room))
        connection.answer(request, *answer)
        if done is not None:
            done()

    def _have_entries(
        self,
        connection: AskingConnection,
        requests: Sequence[EntryReadRequest],
        done: Callable[[], None],
        results: Sequence[EntryData | StorageError],
    ) -> None:
        for request, result in zip(requests, as_bytes(results), strict=False):
            lac = None if isinstance(result, StorageError) else lac_of(result)
            connection.answer(request, read_answer(request, result, max_lac=lac))
        if len(results) < len(requests):
            # Too large for one group: the rest is this connection's next.
            rest = requests[len(results) :]
            if not connection.is_gone:
                self._turns.put_back(connection, rest)
            else:
                connection.dropped(len(rest))
        done()

    # ---- long polls

    def _begin_poll(self, connection: AskingConnection, request: EntryReadRequest) -> None:
        previous = request.previous_lac
        assert previous is not None
        if request.timeout_ms is None:
            self._poll_over(connection, request)
            return
        polls = self._polls
        wake = partial(self._poll_over, connection, request)
        poll = polls.wait(request.ledger_id, previous, request.timeout_ms, connection, wake)
        if poll is None:
            connection.answer(request, read_refusal(request, _TOO_MANY))
            return

        def looked(result: LacResult | StorageError) -> None:
            if not isinstance(result, StorageError):
                polls.grew(request.ledger_id, known_lac(result))
            elif polls.drop(poll):
                connection.answer(request, read_refusal(request, status_of_error(result)))

        self._bookie.read_lac(request.ledger_id, done=looked)

    def _poll_over(self, connection: AskingConnection, request: EntryReadRequest) -> None:
        connection.prompt.begin(request, partial(self._end_poll, connection, request))

    def _end_poll(self, connection: AskingConnection, request: EntryReadRequest) -> None:
        self._bookie.read_lac(request.ledger_id, done=partial(self._answer_poll, connection, request))

    def _answer_poll(
        self, connection: AskingConnection, request: EntryReadRequest, result: LacResult | StorageError
    ) -> None:
        previous = request.previous_lac
        assert previous is not None
        if isinstance(result, StorageError):
            connection.answer(request, read_refusal(request, status_of_error(result)))
            return
        if not request.piggyback:
            self._carry_out_now(connection, request)
            return
        lac = known_lac(result)
        nothing = v3.encode_read_answer(request, StatusCode.EOK, max_lac=lac)
        if lac <= previous or request.version != VERSION_3:
            connection.answer(request, nothing)
            return

        def have(results: Sequence[EntryData | StorageError]) -> None:
            (entry,) = as_bytes(results)
            if isinstance(entry, NoSuchEntryError):
                connection.answer(request, nothing)  # another bookie has it: ledgers are striped
            else:
                connection.answer(request, read_answer(request, entry, entry_id=previous + 1, max_lac=lac))

        self._bookie.read_entries(request.ledger_id, (previous + 1,), have)


def known_lac(result: LacResult) -> int:
    """The newest last add confirmed in what a bookie has of a ledger."""
    in_entry = lac_of(result.last_entry) if result.last_entry is not None else -1
    announced = read_lac_ids(result.explicit_lac)[1] if result.explicit_lac is not None else -1
    return max(in_entry, announced)


def prompt_cost(request: Request) -> int:
    """See ``limits.PROMPT_TURN_COST_MAX``: one that looks through a ledger is a turn's work."""
    return limits.PROMPT_TURN_COST_MAX if isinstance(request, BatchReadRequest | ListEntriesRequest) else 1
