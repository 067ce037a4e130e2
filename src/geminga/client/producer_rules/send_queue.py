"""What a producer sent, or will send, and has no receipt for: the queue that makes resending exact.

Three parts in one order: *in flight* (written to the present connection) before *queued* (not written yet) before
*held* (behind a frame that may not be written yet, which is the first of them). Receipts match the head of what is in
flight; a lost connection puts all of that back into *queued*, in order. Nothing leaves the queue but by a receipt, a
refusal, expiry, or the end of the producer: each exactly once.

Frames are held for a *gate* (the transaction of theirs, until its coordinator knows of the topic) that is opened, once
and for all, or refused. Where the coordinator is told over the frames' own connection, before them, the gate is open as
long as that connection stands, and closed when it is lost without an answer. Where nothing is held, nothing of this is
looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from geminga.model.errors import invariant

#: Whoever wants to hear of a message: a callback (error or None, message id or None), or a future of the shell's.
SendCallback = object
#: Called in the midst of what ends a frame, and must not raise: its two ids, and None or why it is not stored.
OnEnd = Callable[[int, int, Exception | None], None]


class PendingSend:
    """One SEND frame: a message, a batch or a chunk."""

    __slots__ = (
        "callbacks",
        "chunk_index",
        "chunks",
        "created_s",
        "first_chunk_id",
        "frame",
        "gate",
        "highest_sequence_id",
        "messages",
        "on_end",
        "sequence_id",
        "size_bytes",
        "waiters",
        "was_written",
    )

    def __init__(
        self,
        frame: bytes,
        sequence_id: int,
        highest_sequence_id: int,
        messages: int,
        size_bytes: int,
        created_s: float,
        callbacks: list[tuple[int, SendCallback]] | None,
    ) -> None:
        self.frame = frame
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        #: Messages in it; 0 for all chunks but the last of a message.
        self.messages = messages
        #: What it takes of the memory limit.
        self.size_bytes = size_bytes
        #: Monotonic seconds; the send timeout counts from here.
        self.created_s = created_s
        #: (index in the batch, who wants to hear); None: nobody.
        self.callbacks = callbacks
        #: Who hears of it at once; None: nobody but :attr:`callbacks`.
        self.on_end: OnEnd | None = None
        #: What it may be held for (:meth:`SendQueue.hold`); None: nothing.
        self.gate: object | None = None
        #: Written to any connection: only then may it be stored without our knowing.
        self.was_written = False
        #: Called once it and all before it are out of the queue, whatever became of them; None: nobody waits.
        self.waiters: list[Callable[[], None]] | None = None
        #: Of chunked messages: which chunk of how many; 0 of 0 for others.
        self.chunk_index = 0
        self.chunks = 0
        #: Of chunked messages: a list shared by the chunks, with the first one's (ledger id, entry id) once known.
        self.first_chunk_id: list[tuple[int, int]] | None = None


class ReceiptMismatch(Exception):
    """A receipt that fits nothing sent on this connection: it must be closed, and everything sent again."""


class SendQueue:
    """See the module's docstring."""

    __slots__ = ("_closed", "_held", "_in_flight", "_queued", "_tail", "bytes", "messages")

    def __init__(self) -> None:
        self._in_flight: deque[PendingSend] = deque()
        self._queued: deque[PendingSend] = deque()
        self._held: deque[PendingSend] = deque()
        #: Where the next one goes: what is queued, or what is held if anything is.
        self._tail = self._queued
        #: Gates that are closed.
        self._closed: set[object] = set()
        #: Messages and bytes without receipt.
        self.messages = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._queued) + len(self._held)

    @property
    def in_flight(self) -> int:
        """Frames written and not answered."""
        return len(self._in_flight)

    @property
    def queued(self) -> int:
        """Frames not written to the present connection."""
        return len(self._queued) + len(self._held)

    @property
    def newest(self) -> PendingSend | None:
        """The one sent last."""
        return next((part[-1] for part in (self._held, self._queued, self._in_flight) if part), None)

    @property
    def oldest(self) -> PendingSend | None:
        """The one whose receipt comes next."""
        return next((part[0] for part in (self._in_flight, self._queued, self._held) if part), None)

    def add(self, pending: PendingSend) -> None:
        """Behind everything else."""
        self._tail.append(pending)
        self.messages += pending.messages
        self.bytes += pending.size_bytes

    def hold(self, pending: PendingSend, gate: object) -> bool:
        """``pending`` is to be added next: neither it nor what comes behind it is written before ``gate`` is opened.

        True: it is the first that this gate holds; whoever opens or refuses it is to be asked.
        """
        self._tail = self._held
        pending.gate = gate
        if gate in self._closed:
            return False
        self._closed.add(gate)
        return True

    def open_gate(self, gate: object) -> None:
        """What was held for it may be written."""
        self._closed.discard(gate)
        self._release()

    def refuse_gate(self, gate: object) -> list[PendingSend]:
        """What was held for it will never be written: take it out."""
        self._closed.discard(gate)
        self._pass_on_waiters([pending for pending in self._held if pending.gate == gate])
        held = list(self._held)
        self._held.clear()
        self._held.extend(pending for pending in held if pending.gate != gate)
        refused = [pending for pending in held if pending.gate == gate]
        for pending in refused:
            self._removed(pending)
        self._release()
        return refused

    def _release(self) -> None:
        held, closed = self._held, self._closed
        while held and held[0].gate not in closed:
            self._queued.append(held.popleft())
        if not held:
            self._tail = self._queued

    def next_to_write(self) -> PendingSend | None:
        """The next one to write, which counts as written now; None if there is none."""
        if not self._queued:
            return None
        pending = self._queued.popleft()
        pending.was_written = True
        self._in_flight.append(pending)
        return pending

    def receipt(self, sequence_id: int) -> PendingSend | None:
        """The one that was stored; None for a late receipt of one given up. Raises ReceiptMismatch."""
        in_flight = self._in_flight
        if not in_flight:
            return None
        head = in_flight[0]
        if head.sequence_id == sequence_id:
            in_flight.popleft()
            self._removed(head)
            return head
        if sequence_id > head.sequence_id:
            raise ReceiptMismatch(
                f"receipt of sequence id {sequence_id}, while {head.sequence_id} is the next of {len(in_flight)}"
            )
        return None

    @property
    def was_written(self) -> bool:
        """Whether any of it was on a connection already."""
        oldest = self.oldest
        return oldest is not None and oldest.was_written

    def connection_lost(self, gates: Iterable[object] = ()) -> None:
        """Everything is to be written again, in order. ``gates`` are closed now: what passed them while that connection
        stood waits, with all behind it, until each is opened or refused."""
        queued = self._queued
        queued.extendleft(reversed(self._in_flight))
        self._in_flight.clear()
        closed = self._closed
        closed.update(gates)
        if closed:
            first = next((index for index, each in enumerate(queued) if each.gate in closed), len(queued))
            while len(queued) > first:
                self._held.appendleft(queued.pop())
            if self._held:
                self._tail = self._held

    def expire(self, created_before_s: float) -> list[PendingSend]:
        """Take out those from the head on that are older."""
        expired = []
        for part in (self._in_flight, self._queued, self._held):
            while part and part[0].created_s <= created_before_s:
                pending = part.popleft()
                self._removed(pending)
                expired.append(pending)
            if part:
                break
        self._release()
        return expired

    def take_rest(self) -> list[PendingSend]:
        """Take out what is left of a message whose first parts were stored already, unless it waits for a gate."""
        rest: list[PendingSend] = []
        part = self._in_flight or self._queued
        while part and part[0].chunk_index:
            rest.append(part.popleft())
            self._removed(rest[-1])
            part = self._in_flight or self._queued
        return rest

    def take_gated(self, is_over: Callable[[object], bool]) -> list[PendingSend]:
        """Take out those whose gate ``is_over``, open or closed, oldest first."""
        taken = [
            pending
            for pending in (*self._in_flight, *self._queued, *self._held)
            if pending.gate is not None and is_over(pending.gate)
        ]
        if taken:
            self._pass_on_waiters(taken)
            gone = {id(pending) for pending in taken}
            for part in (self._in_flight, self._queued, self._held):
                kept = [pending for pending in part if id(pending) not in gone]
                part.clear()
                part.extend(kept)
            for pending in taken:
                self._removed(pending)
            self._release()
        return taken

    def _pass_on_waiters(self, taken: list[PendingSend]) -> None:
        """These are taken out, perhaps before older ones: who waits for all up to one of them waits for what is left of
        that."""
        if all(pending.waiters is None for pending in taken):
            return
        gone = {id(pending) for pending in taken}
        before: PendingSend | None = None
        for pending in (*self._in_flight, *self._queued, *self._held):
            if id(pending) not in gone:
                before = pending
            elif before is not None and pending.waiters is not None:
                before.waiters = [*(before.waiters or ()), *pending.waiters]
                pending.waiters = None

    def take_all(self) -> list[PendingSend]:
        """The end: take out everything, oldest first."""
        everything = [*self._in_flight, *self._queued, *self._held]
        self._in_flight.clear()
        self._queued.clear()
        self._held.clear()
        self._closed.clear()
        self._tail = self._queued
        self.messages = self.bytes = 0
        return everything

    def check_invariants(self) -> None:
        """Counters and queue agree."""
        everything = [*self._in_flight, *self._queued, *self._held]
        invariant(not self._held or self._held[0].gate in self._closed, "frames are held, and none of them waits")
        invariant(self._tail is (self._held or self._queued), "the order of the send queue is broken")
        free = (*self._in_flight, *self._queued)
        invariant(all(pending.gate not in self._closed for pending in free), "a frame passed a closed gate")
        invariant(self.messages == sum(p.messages for p in everything), "messages of the send queue are miscounted")
        invariant(self.bytes == sum(p.size_bytes for p in everything), "bytes of the send queue are miscounted")

    def _removed(self, pending: PendingSend) -> None:
        self.messages -= pending.messages
        self.bytes -= pending.size_bytes
        invariant(self.messages >= 0 and self.bytes >= 0, "the send queue gave out more than it took")
