"""Chunked messages: large messages that came in pieces are put together again.

Pieces of one message carry its ``uuid`` and follow each other, perhaps among pieces of other messages. Limits:
``pending_max`` messages under way, and bytes of their pieces (the oldest gives way), ``expire_ms`` without another
piece of one. A message that gives way is either acknowledged (it is lost on purpose) or asked for again, as the
consumer was told, and so is what still comes of it: the broker may have all of it.

A producer that lost its connection sends again what has no receipt, from some piece on: without deduplication the
broker may have stored those pieces before. The first copy of each counts, unless the copies begin with the first piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geminga.model.errors import invariant

PENDING_MAX_DEFAULT = 10
EXPIRE_MS_DEFAULT = 60_000
#: Messages that became whole and are remembered: pieces of them that were stored twice may come behind.
WHOLE_KEPT_MAX = 100
#: Messages that gave way and are remembered until they come from the beginning again.
GAVE_WAY_KEPT_MAX = 1000
#: A piece counts for its bytes and so many: a message may be cut into millions.
PIECE_OVERHEAD_BYTES = 128
#: Bytes of a message in pieces unless told otherwise.
BYTES_MAX_DEFAULT = 256 << 20
#: So many of the largest may wait in pieces at one consumer, of all its topics: those that lie between each other as a
#: rule have room, as who reads without acknowledging one by one does not get what gave way.
LARGEST_HELD_MAX = 4

EntryKey = tuple[int, int]


@dataclass(slots=True)
class Chunk:
    """One piece, as its message metadata says."""

    #: As it was sent.
    uuid: str | bytes
    chunk_id: int
    #: Pieces of the whole message.
    chunk_count: int
    #: Bytes of the whole message, before decompression.
    total_size: int
    payload: bytes
    entry: EntryKey


@dataclass(slots=True)
class _Pending:
    chunk_count: int
    total_size: int
    #: When its last piece came.
    last_ms: float
    payloads: list[bytes] = field(default_factory=list)
    entries: list[EntryKey] = field(default_factory=list)
    size: int = 0

    @property
    def held_bytes(self) -> int:
        """What counts in the bound of all."""
        return self.size + PIECE_OVERHEAD_BYTES * len(self.payloads)


@dataclass(slots=True)
class ChunkBounds:
    """Of all topics of a consumer."""

    #: Bytes of a message in pieces, and of what it inflates to; 0: any.
    message_bytes_max: int = 0
    #: Bytes of all pieces that wait for others; 0: any.
    held_bytes_max: int = 0
    #: Of all pieces that wait for others, with what each takes besides.
    held_bytes: int = 0

    @property
    def are_passed(self) -> bool:
        """Whether more waits than may."""
        return 0 < self.held_bytes_max < self.held_bytes

    def has_room(self, *sizes_bytes: int) -> bool:
        """Whether a message of such sizes may be put together."""
        return not self.message_bytes_max or max(sizes_bytes) <= self.message_bytes_max


@dataclass(slots=True)
class ChunkResult:
    """What a piece led to."""

    #: The whole payload, once the last piece is there; its pieces' entries are in ``entries``.
    payload: bytes | None = None
    entries: Sequence[EntryKey] = ()
    #: Entries of messages that never become whole from here: acknowledge them, or have them redelivered.
    discarded: Sequence[EntryKey] = ()
    #: Entries of messages that gave way to others: have them redelivered, unless the application wants to lose them.
    evicted: Sequence[EntryKey] = ()
    #: Entries of pieces that were stored twice: acknowledge them, nothing needs them.
    repeated: Sequence[EntryKey] = ()
    #: The piece was of no use (its beginning never came, or it came twice): acknowledge or redeliver it, too.
    is_stray: bool = False


class ChunkAssembly:
    """Messages under way at one consumer of one topic. Times are milliseconds of a clock that does not go back."""

    __slots__ = ("_expire_ms", "_gave_way", "_pending", "_pending_max", "_whole", "bounds")

    def __init__(
        self,
        pending_max: int = PENDING_MAX_DEFAULT,
        expire_ms: float = EXPIRE_MS_DEFAULT,
        bounds: ChunkBounds | None = None,
    ) -> None:
        """``pending_max`` 0: no limit, ``expire_ms`` 0: never; ``bounds`` None: none."""
        self.bounds = bounds or ChunkBounds()
        self._pending_max = pending_max
        self._expire_ms = expire_ms
        #: By uuid, oldest first.
        self._pending: dict[str | bytes, _Pending] = {}
        #: The last entries of those that became whole, by uuid, oldest first.
        self._whole: dict[str | bytes, EntryKey] = {}
        #: Those that gave way to others, by uuid, oldest first.
        self._gave_way: dict[str | bytes, None] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def size_bytes(self) -> int:
        """Bytes of the pieces that wait for others."""
        return sum(pending.size for pending in self._pending.values())

    @property
    def next_expiry_ms(self) -> float | None:
        """When :meth:`expire` has something; None if nothing is under way."""
        if not self._expire_ms or not self._pending:
            return None
        return min(pending.last_ms for pending in self._pending.values()) + self._expire_ms

    def add(self, chunk: Chunk, now_ms: float, size_max: int = 0) -> ChunkResult:
        """A piece came. ``size_max`` > 0: larger messages are of no use."""
        pending = self._pending.get(chunk.uuid)
        evicted: list[EntryKey] = []
        repeated: list[EntryKey] = []
        if chunk.chunk_id == 0:
            self._whole.pop(chunk.uuid, None)
            self._gave_way.pop(chunk.uuid, None)
            if pending is not None:
                # From the beginning again. By a redelivery: what came before comes again as well.
                self._remove(chunk.uuid)
                if chunk.entry > pending.entries[-1]:
                    repeated = pending.entries
            if chunk.chunk_count <= 0 or (size_max and chunk.total_size > size_max):
                return ChunkResult(repeated=repeated, is_stray=True)
            pending = self._pending[chunk.uuid] = _Pending(chunk.chunk_count, chunk.total_size, now_ms)
            if self._pending_max and len(self._pending) > self._pending_max:
                evicted = self._evict(next(iter(self._pending)))
        if pending is None:
            return self._without_beginning(chunk)
        if chunk.chunk_id != len(pending.payloads):
            if chunk.chunk_id < len(pending.payloads):
                if chunk.entry in pending.entries:
                    return ChunkResult()  # the same piece once more
                if chunk.entry > pending.entries[-1]:
                    return ChunkResult(repeated=[chunk.entry])
            # A hole: it can not become whole from here.
            self._remove(chunk.uuid)
            return ChunkResult(discarded=pending.entries, is_stray=True)
        pending.last_ms = now_ms
        pending.payloads.append(chunk.payload)
        pending.entries.append(chunk.entry)
        pending.size += len(chunk.payload)
        self.bounds.held_bytes += len(chunk.payload) + PIECE_OVERHEAD_BYTES
        if pending.size > pending.total_size:
            self._remove(chunk.uuid)
            return ChunkResult(discarded=pending.entries, evicted=evicted, repeated=repeated)
        if len(pending.payloads) < pending.chunk_count:
            while self.bounds.are_passed and chunk.uuid in self._pending:
                # The oldest of this topic; if others hold all the rest, this one.
                evicted += self._evict(next(iter(self._pending)))
            return ChunkResult(evicted=evicted, repeated=repeated)
        self._remove(chunk.uuid)
        self._remember_whole(chunk)
        return ChunkResult(b"".join(pending.payloads), pending.entries, evicted=evicted, repeated=repeated)

    def _without_beginning(self, chunk: Chunk) -> ChunkResult:
        last = self._whole.get(chunk.uuid)
        if last is not None and chunk.entry > last:
            return ChunkResult(repeated=[chunk.entry])
        if chunk.uuid in self._gave_way:
            return ChunkResult(evicted=[chunk.entry])
        return ChunkResult(is_stray=True)

    def _remove(self, uuid: str | bytes) -> _Pending:
        pending = self._pending.pop(uuid)
        self.bounds.held_bytes -= pending.held_bytes
        return pending

    def _evict(self, uuid: str | bytes) -> list[EntryKey]:
        if len(self._gave_way) >= GAVE_WAY_KEPT_MAX:
            del self._gave_way[next(iter(self._gave_way))]
        self._gave_way[uuid] = None
        return self._remove(uuid).entries

    def _remember_whole(self, last: Chunk) -> None:
        if len(self._whole) >= WHOLE_KEPT_MAX:
            del self._whole[next(iter(self._whole))]
        self._whole[last.uuid] = last.entry

    def expire(self, now_ms: float) -> list[EntryKey]:
        """Entries of messages of which nothing more came in time."""
        due = [uuid for uuid, pending in self._pending.items() if pending.last_ms + self._expire_ms <= now_ms]
        return [entry for uuid in due for entry in self._remove(uuid).entries] if self._expire_ms else []

    def put_off(self, now_ms: float) -> None:
        """Nothing could come until now: the time begins anew."""
        for pending in self._pending.values():
            pending.last_ms = now_ms

    def clear(self) -> None:
        """The subscription starts over: everything comes again."""
        for uuid in list(self._pending):
            self._remove(uuid)
        self._gave_way.clear()

    def check_invariants(self) -> None:
        """Raises InvariantError for a state that can not be."""
        if self._pending_max:
            invariant(len(self._pending) <= self._pending_max, f"{len(self._pending)} messages under way")
        held = sum(pending.held_bytes for pending in self._pending.values())
        invariant(held <= self.bounds.held_bytes, f"{held} bytes of pieces, {self.bounds.held_bytes} are counted")
        for uuid, pending in self._pending.items():
            invariant(
                len(pending.payloads) == len(pending.entries) < pending.chunk_count,
                f"{uuid!r}: {len(pending.payloads)} of {pending.chunk_count} pieces, {len(pending.entries)} entries",
            )
