"""One client's connection to a bookie: requests in, calls of the bookie's port, answers out.

Adds go to the bookie at once, those of one read and ledger as one call (plain ones of version 2, which is how brokers
send them, without a value for each); answers of a turn of the loop leave with one write. When a read is carried out is
decided for all connections together (``reads``). What is not answered yet is counted in bytes: a connection that has
too many is not read, and neither is one that does not take its answers. A request whose connection went is carried out,
and not answered.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from geminga.bookie.serving import limits
from geminga.bookie.serving.answering import (
    add_answers,
    add_status,
    lac_of,
)
from geminga.bookie.serving.ledger_requests import LEDGER_HANDLERS
from geminga.bookie.serving.prompt_requests import PromptRequests
from geminga.bookie.serving.reads import QueuedRead, prompt_cost
from geminga.model.bookie_port import EntryData
from geminga.model.errors import StorageError
from geminga.runtime import get_logger, let_go
from geminga.runtime.frame_room import LARGE_FRAME_BYTES, HalfFrame
from geminga.runtime.log import trace_id
from geminga.wire.bookkeeper.add_stream import encode_run_answers
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    BookieInfoRequest,
    EntryReadRequest,
    ListEntriesRequest,
    ReadLacRequest,
    RefusedRequest,
    Request,
    TracedRequest,
)
from geminga.wire.bookkeeper.stream import RequestDecoder

if TYPE_CHECKING:
    from geminga.bookie.serving.server import BookieServer

_log = get_logger(__name__)


class BookieConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, server: BookieServer) -> None:
        self.server = server
        self.bookie = server.bookie
        self._loop = asyncio.get_running_loop()
        self._decoder = RequestDecoder(server.frame_bytes_max, gathers_adds=True)
        self._transport: asyncio.Transport | None = None
        #: Answers of this turn of the loop.
        self._answers: list[EntryData] = []
        self._answer_bytes = 0
        #: What is not answered yet.
        self._unanswered_bytes = 0
        self._is_reading_paused = False
        self._is_writing_paused = False
        #: Since when it holds a part of a request, and since when it does not take its answers; None: it does neither.
        self._begun_at: float | None = None
        self._behind_since: float | None = None
        #: A large frame that is not whole yet, and whether there is no room for the rest of it.
        self._half_frame: HalfFrame | None = None
        self._awaits_room = False
        #: One group of its reads is under way.
        self._has_group = False
        self.prompt = PromptRequests(self._may_answer)

    # ---- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        # No isinstance: uvloop's transports are not asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=limits.OUTPUT_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            # A client whose machine is gone says nothing: the kernel finds out.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.server.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It went: what waits for its turn is dropped."""
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None
        self._answers.clear()
        self._answer_bytes = 0
        self._decoder.drop()
        self._end_half_frame()
        self.dropped(self.prompt.forget())
        self.server.unread.forget(self)
        self.server.forget(self)

    def pause_writing(self) -> None:
        """The client does not take its answers."""
        self._is_writing_paused = True
        self._behind_since = self._loop.time()
        self.update_flow()

    def resume_writing(self) -> None:
        """It took most of them."""
        self._is_writing_paused = False
        self._behind_since = None
        self.update_flow()
        self.prompt.go_on()
        self.server.reads.serve()

    def data_received(self, data: bytes) -> None:
        """Requests, whole ones and a part of the next."""
        adds: list[AddRequest] = []
        requests = self._decoder.feed(data)
        if self._half_frame is not None or self._decoder.incomplete_bytes > LARGE_FRAME_BYTES:
            self._mind_half_frame(has_ended=bool(requests))
        if not self._decoder.buffered_bytes:
            self._begun_at = None
        elif requests or self._begun_at is None:
            self._begun_at = self._loop.time()
        for request in requests:
            self._count(_cost(request))
            if isinstance(request, AddRequest):
                adds.append(request)
                continue
            # What follows an add on a connection is begun after it.
            self._add(adds)
            adds = []
            if isinstance(request, AddRunRequest):
                self._add_run(request)
            else:
                self._handle(request)
        self._add(adds)
        if self._decoder.error is not None and self._transport is not None:
            _log.warning("bookie: the connection of %s is closed: %s", self.peer, self._decoder.error)
            self._flush()
            self._transport.close()
        self.update_flow()

    # ---- flow

    @property
    def peer(self) -> str:
        """Who it is, for the log."""
        return str(self._transport.get_extra_info("peername")) if self._transport is not None else "a client that went"

    @property
    def is_gone(self) -> bool:
        """Nobody gets its answers."""
        return self._transport is None

    @property
    def may_read(self) -> bool:
        """Whether a group of its reads may be carried out now."""
        return not (self._has_group or self._is_writing_paused or self.server.unread.is_full)

    def _may_answer(self) -> bool:
        if self._transport is None:
            return True  # nobody gets it
        if self._is_writing_paused or self.server.unread.is_full:
            return False
        return self._answer_bytes < limits.OUTPUT_BYTES_MAX

    def _count(self, size_bytes: int) -> None:
        self._unanswered_bytes += size_bytes
        self.server.count(size_bytes)

    def answer(self, request: Request, *parts: EntryData) -> None:
        """The answer of one request, in parts."""
        self._count(-_cost(request))
        self.write(*parts)
        self.update_flow()
        self.prompt.over(request)

    def write(self, *parts: EntryData) -> None:
        """Answers, which leave together with the others of this turn."""
        if self._transport is None:
            return
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers += parts
        self._answer_bytes += sum(map(len, parts))

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        size_bytes, self._answer_bytes = self._answer_bytes, 0
        if not answers or self._transport is None:
            return
        if size_bytes >= limits.WRITE_PIECES_BYTES_MIN * len(answers):
            self._transport.writelines(answers)
        else:
            self._transport.write(b"".join(answers))
        self.server.unread.wrote(self, size_bytes, self._transport.get_write_buffer_size())
        self.prompt.go_on()

    @property
    def unread_bytes(self) -> int:
        """What its client was sent and has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def reads_go_on(self) -> None:
        """There is room for answers again, over all connections."""
        self.prompt.go_on()

    def update_flow(self) -> None:
        """Read on, or do not, by what is unanswered here and at the whole server."""
        if self._transport is None or self._transport.is_closing():
            return
        share = 2 if self._is_reading_paused else 1
        is_full = self._unanswered_bytes > limits.CONNECTION_BYTES_MAX // share or (
            self.server.is_full and self._unanswered_bytes > 0
        )
        if is_full or self._is_writing_paused or self._awaits_room:
            if not self._is_reading_paused:
                self._is_reading_paused = True
                self._transport.pause_reading()
        elif self._is_reading_paused:
            self._is_reading_paused = False
            if self._begun_at is not None:
                self._begun_at = self._loop.time()  # it could not be completed meanwhile
            self._transport.resume_reading()

    def end_if_stuck(self) -> None:
        """End it if a request is never completed, or answers are never taken: what it holds others need."""
        if self._transport is None:
            return
        latest = self._loop.time() - limits.STUCK_S_MAX
        if self._behind_since is not None and self._behind_since <= latest:
            what = f"does not take its answers for {limits.STUCK_S_MAX:.0f} s"
        elif self._begun_at is not None and self._begun_at <= latest and not self._is_reading_paused:
            what = f"began a request and did not complete it in {limits.STUCK_S_MAX:.0f} s"
        else:
            return
        _log.warning("bookie: the connection of %s is closed: it %s", self.peer, what)
        self._transport.abort()

    # ---- large frames, which take room that all connections share

    def _mind_half_frame(self, *, has_ended: bool) -> None:
        """One has begun, grown, or ended."""
        if has_ended or self._decoder.error is not None:
            self._end_half_frame()
        if self._half_frame is not None:
            self.server.frame_room.progress(self._half_frame)
        elif self._decoder.incomplete_bytes > LARGE_FRAME_BYTES and self._transport is not None:
            self._half_frame = self.server.frame_room.begin(self, self._decoder.incomplete_bytes)

    def _end_half_frame(self) -> None:
        if self._half_frame is not None:
            half, self._half_frame = self._half_frame, None
            self._awaits_room = False
            self.server.frame_room.end(half)

    @property
    def is_heard(self) -> bool:
        """Whether it is read now."""
        return not self._is_reading_paused

    def frame_waits(self) -> None:
        """There is no room for the rest of a frame now."""
        self._awaits_room = True
        self.update_flow()

    def frame_has_room(self) -> None:
        """There is now."""
        self._awaits_room = False
        self.update_flow()

    def abort(self, reason: str = "") -> None:
        """End it: others wait for what it holds."""
        if self._transport is not None:
            _log.warning("bookie: the connection of %s is closed: %s", self.peer, reason)
            self._transport.abort()

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # ---- adds

    def _add(self, requests: Sequence[AddRequest]) -> None:
        """Those of one ledger and kind as one call."""
        groups: dict[tuple[int, bytes, bool], list[AddRequest]] = {}
        for request in requests:
            groups.setdefault((request.ledger_id, request.master_key, request.recovery), []).append(request)
        for (ledger_id, key, recovery), group in groups.items():
            ids: Sequence[int] = [request.entry_id for request in group]
            run = range(ids[0], ids[0] + len(ids))
            if ids[-1] == run.stop - 1 and ids == list(run):
                ids = run
            entries = [request.entry for request in group]
            done = _AddGroup(self, group).done
            self.bookie.add_entries(ledger_id, ids, entries, master_key=key, recovery=recovery, done=done)

    def added(self, requests: Sequence[AddRequest], error: StorageError | None) -> None:
        """These adds ended so."""
        self._count(-sum(map(_cost, requests)))
        self.write(add_answers(requests, add_status(error)))
        self.update_flow()
        polls = self.server.polls
        if error is None and polls.is_awaited:
            polls.grew(requests[0].ledger_id, max(lac_of(request.entry) for request in requests))

    def _add_run(self, run: AddRunRequest) -> None:
        entry_ids: Sequence[int] = (run.first,) if len(run.entries) == 1 else range(run.first, run.stop)
        done = partial(self._added_run, run)
        self.bookie.add_entries(
            run.ledger_id, entry_ids, run.entries, master_key=run.master_key, recovery=False, done=done
        )

    def _added_run(self, run: AddRunRequest, entry_ids: Sequence[int], error: StorageError | None) -> None:
        """These adds of a run ended so."""
        if len(entry_ids) == len(run.entries):
            self._count(-_cost(run))
        else:
            entry_bytes = sum(len(run.entries[entry_id - run.first]) for entry_id in entry_ids)
            self._count(-entry_bytes - limits.REQUEST_BYTES * len(entry_ids))
        self.write(encode_run_answers(run.ledger_id, entry_ids, add_status(error)))
        self.update_flow()
        polls = self.server.polls
        if error is None and polls.is_awaited:
            polls.grew(run.ledger_id, max(lac_of(run.entries[entry_id - run.first]) for entry_id in entry_ids))

    # ---- everything else

    def serve_traced(self, traced: TracedRequest) -> None:
        """One that says what caused it: its lines have that trace id, and a read does not wait, to be done here."""
        request = traced.request
        # It was counted without an entry.
        self._count(_cost(request) - limits.REQUEST_BYTES)
        token = trace_id.set(traced.trace)
        try:
            _log.debug("bookie: %s of ledger %s", type(request).__name__, getattr(request, "ledger_id", "none"))
            if isinstance(request, AddRequest):
                self._add([request])
            elif isinstance(request, EntryReadRequest):
                self._handle(request._replace(high_priority=True))
            else:
                self._handle(request)
        finally:
            trace_id.reset(token)

    def _handle(self, request: Request) -> None:
        if isinstance(request, RefusedRequest):
            _log.warning("bookie: refused to %s: %s", self.peer, request.story)
            self.answer(request, request.answer)
        elif isinstance(request, EntryReadRequest | BatchReadRequest):
            self.server.reads.begin(self, request)
        elif isinstance(request, ReadLacRequest | ListEntriesRequest | BookieInfoRequest):
            self.prompt.begin(request, partial(LEDGER_HANDLERS[type(request)], self, request), prompt_cost(request))
        else:
            LEDGER_HANDLERS[type(request)](self, request)

    def take_turn(self, requests: Sequence[QueuedRead], done: Callable[[], None]) -> None:
        """Carry out a group of reads; ``done`` when all are answered or wait again."""
        self._has_group = True

        def over() -> None:
            self._has_group = False
            done()

        self.server.reads.carry_out(self, requests, over)

    def dropped(self, count: int) -> None:
        """So many reads waited, for their turn or a LAC, when the connection went."""
        self._count(-count * limits.REQUEST_BYTES)


class _AddGroup:
    """Adds that went to the bookie with one call, and are answered in one or several groups."""

    __slots__ = ("_by_id", "_connection", "_requests")

    def __init__(self, connection: BookieConnection, requests: list[AddRequest]) -> None:
        self._connection = connection
        self._requests = requests
        self._by_id: dict[int, deque[AddRequest]] | None = None

    def done(self, entry_ids: Sequence[int], error: StorageError | None) -> None:
        """See ``bookie_port.AddDone``."""
        if self._by_id is None:
            if len(entry_ids) == len(self._requests):
                self._connection.added(self._requests, error)
                return
            self._by_id = {}
            for request in self._requests:
                self._by_id.setdefault(request.entry_id, deque()).append(request)
        by_id = self._by_id
        self._connection.added([by_id[entry_id].popleft() for entry_id in entry_ids], error)


def _cost(request: Request) -> int:
    """What an unanswered request counts as, bytes."""
    if isinstance(request, AddRunRequest):
        return limits.REQUEST_BYTES * len(request.entries) + request.size_bytes
    return limits.REQUEST_BYTES + (len(request.entry) if isinstance(request, AddRequest) else 0)
