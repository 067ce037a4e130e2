"""Which messages of a log are the newest of their keys: exact, in bounded memory.

Messages are numbered as they come. The newest number of each key is kept in a table; when that would take more than
it may, what it has and all that comes goes to runs of keys elsewhere (:class:`Spill`), which are judged one by one in
the end. What is left is a bit for each message: kept, or not.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct, unpack_from
from typing import Final, Protocol

from geminga.broker.core.compaction.entry_counts import EntryCounts
from geminga.broker.core.compaction.entry_messages import (
    DELETES,
    IS_GONE,
    ChunkPart,
    EntryMessages,
    Key,
    Steps,
    taken_apart,
)

#: What a key takes in the table beside its own bytes: an object, a number, a slot of a dictionary that grows.
KEY_BYTES: Final = 200
#: Messages in parts whose other parts did not come yet; the oldest are kept without being anybody's newest.
OPEN_CHUNKS_MAX: Final = 10_000
#: Runs of keys that a table is divided into: a run of 50,000,000 keys has 200,000 of them.
RUNS: Final = 256
#: Keys judged between two looks at the clock.
STEP_KEYS: Final = 250
#: Keys of a full table that go elsewhere with each message that comes.
PUT_AWAY_KEYS: Final = 4
#: Of a record in a run: bytes of the key, and how many numbers.
_HEAD: Final = Struct(">II")
_NUMBER: Final = Struct(">Q")


class Spill(Protocol):
    """Where runs of keys are while the table is too large."""

    def write(self, run: int, record: bytes) -> None:
        """Behind all that was written to this run. Raises StorageError."""
        ...

    def read(self, run: int) -> Iterator[bytes]:
        """All that was written to it, in blocks of whole records. Raises StorageError."""
        ...

    def close(self) -> None:
        """Nothing of it is needed any more."""
        ...


class KeptMessages:
    """A bit for each message, by its number."""

    __slots__ = ("_bits", "_count")

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = 0

    def add(self, number: int) -> None:
        """It is kept, and was not before."""
        index = number >> 3
        bits = self._bits
        if index >= len(bits):
            bits.extend(bytes(index + 1 - len(bits) + (len(bits) >> 3)))
        bits[index] |= 1 << (number & 7)
        self._count += 1

    def bits(self, first: int, count: int) -> int:
        """A bit for each of ``count`` messages from ``first`` on, the lowest for the first."""
        found = int.from_bytes(self._bits[first >> 3 : (first + count + 7) >> 3], "little")
        return (found >> (first & 7)) & ((1 << count) - 1)

    def __len__(self) -> int:
        return self._count


#: The numbers of a key's newest message: one, or those of its parts; none: the key was deleted.
_Numbers = int | Sequence[int]
_DELETED: Final[Sequence[int]] = ()


class NewestMessages:
    """See the module."""

    __slots__ = (
        "_bytes_max",
        "_keeps_null_keys",
        "_new_spill",
        "_open",
        "_spill",
        "_table",
        "_table_bytes",
        "_tombstones_from_ms",
        "count",
        "counts",
        "kept",
    )

    def __init__(
        self,
        *,
        keeps_null_keys: bool,
        bytes_max: int,
        new_spill: Callable[[], Spill],
        tombstones_from_ms: int | None = None,
    ) -> None:
        """``keeps_null_keys``: messages without a key stay. ``bytes_max``: what the table of keys may take.
        ``tombstones_from_ms``: the newest message of a key that deletes it is kept, if it was published then or later;
        None: none is."""
        self._keeps_null_keys = keeps_null_keys
        self._tombstones_from_ms = tombstones_from_ms
        self._bytes_max = bytes_max
        self._new_spill = new_spill
        self._table: dict[bytes, _Numbers] = {}
        self._table_bytes = 0
        self._spill: Spill | None = None
        #: Messages in parts that are not complete, by series.
        self._open: dict[str | bytes, array[int]] = {}
        #: Messages that came.
        self.count = 0
        #: Those of each entry.
        self.counts = EntryCounts()
        #: Those that are kept: complete after :meth:`settle`.
        self.kept = KeptMessages()

    def take(self, entries: Iterable[bytes | None]) -> Steps[None]:
        """The next entries of the log, in steps of a bounded time; None: one that consumers do not get. May raise
        StorageError."""
        for found in taken_apart(entries, tombstones_from_ms=self._tombstones_from_ms):
            if found is not None:
                yield from self.add(found)
            yield

    def add(self, found: EntryMessages) -> Steps[None]:
        """The next entry, or entries, as they were taken apart. May raise StorageError."""
        keys, flags = found.keys, found.flags
        if found.entries > 1:
            self.counts.add(1, found.entries)
        else:
            self.counts.add(len(keys))
        if found.chunk is not None:
            self._add_chunk(keys[0], found.chunk)
            return
        for start in range(0, len(keys), STEP_KEYS):
            some = keys[start : start + STEP_KEYS]
            if found.is_whole:
                self._keep(range(self.count, self.count + len(some)))
                self.count += len(some)
            else:
                self._add(some, flags[start : start + STEP_KEYS])
            yield

    def settle(self) -> Steps[None]:
        """Judge all keys. May raise StorageError."""
        for series in self._open.values():
            # Its other parts may come: nothing of it goes, and it is nobody's newest yet.
            self._keep(series)
        self._open.clear()
        if self._spill is None:
            yield from self._judge(self._table)
            self._table = {}
            return
        while self._table:
            self._put_away(STEP_KEYS)
            yield
        for run in range(RUNS):
            table: dict[bytes, _Numbers] = {}
            for block in self._spill.read(run):
                yield from _replay(block, table)
            yield from self._judge(table)
        self.close()

    def close(self) -> None:
        """Let go of what is elsewhere."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None
        self._table = {}

    def _add(self, keys: Sequence[Key], flags: bytes) -> None:
        first = self.count
        self.count += len(keys)
        if self._spill is None and not any(flags) and None not in keys:
            # As nearly all are: no step for each message.
            self._set_all(keys, first)  # type: ignore[arg-type]  # no None among them
            return
        for number, (key, flag) in enumerate(zip(keys, flags, strict=True), first):
            if not flag & IS_GONE:
                self._newest(key, _DELETED if flag & DELETES else number)

    def _judge(self, table: dict[bytes, _Numbers]) -> Steps[None]:
        """What is newest of each key is kept; ``table`` is empty then: to free a large one at once takes long."""
        keep = self.kept.add
        while table:
            for _ in range(min(STEP_KEYS, len(table))):
                numbers = table.popitem()[1]
                if isinstance(numbers, int):
                    keep(numbers)
                else:
                    self._keep(numbers)
            yield

    def _keep(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.kept.add(number)

    def _add_chunk(self, key: Key, part: ChunkPart) -> None:
        number = self.count
        self.count += 1
        series = self._open.pop(part.series, None)
        if part.chunk_id == 0:
            if series is not None:
                self._keep(series)
            if len(self._open) >= OPEN_CHUNKS_MAX:
                self._keep(self._open.pop(next(iter(self._open))))
            series = array("Q", (number,))
        elif series is None or len(series) != part.chunk_id:
            # A part that was sent twice, or whose first ones are gone: left as it is.
            self.kept.add(number)
        else:
            series.append(number)
            if len(series) == part.chunks:
                self._newest(key, series)
                return
        if series is not None:
            self._open[part.series] = series

    def _set_all(self, keys: Sequence[bytes], first: int) -> None:
        """The newest of these keys are the messages from ``first`` on, in order."""
        table = self._table
        news = set(keys).difference(table)
        self._table_bytes += KEY_BYTES * len(news) + sum(map(len, news))
        table.update(zip(keys, range(first, first + len(keys)), strict=True))
        self._limit_table()

    def _limit_table(self) -> None:
        if self._table_bytes > self._bytes_max:
            # The table goes there bit by bit, with what comes.
            self._spill = self._new_spill()

    def _newest(self, key: Key, numbers: _Numbers) -> None:
        if key is None:
            if self._keeps_null_keys and numbers is not _DELETED:
                self._keep((numbers,) if isinstance(numbers, int) else numbers)
            return
        table = self._table
        if self._spill is not None:
            # What was known of it before goes first.
            before = table.pop(key, None)
            if before is not None:
                self._spill.write(*_record(key, before))
            self._spill.write(*_record(key, numbers))
            self._put_away(PUT_AWAY_KEYS)
            return
        if key not in table:
            if numbers is _DELETED:
                return
            self._table_bytes += KEY_BYTES + len(key)
        elif numbers is _DELETED:
            del table[key]
            self._table_bytes -= KEY_BYTES + len(key)
            return
        table[key] = numbers
        self._limit_table()

    def _put_away(self, keys: int) -> None:
        """The next so many of the table go where the rest is."""
        table, spill = self._table, self._spill
        assert spill is not None
        for _ in range(min(keys, len(table))):
            spill.write(*_record(*table.popitem()))


def _record(key: bytes, numbers: _Numbers) -> tuple[int, bytes]:
    """The run that a key is in, and what is written there."""
    if isinstance(numbers, int):
        return hash(key) % RUNS, b"%b%b%b" % (_HEAD.pack(len(key), 1), key, _NUMBER.pack(numbers))
    head = _HEAD.pack(len(key), len(numbers))
    return hash(key) % RUNS, b"".join((head, key, *map(_NUMBER.pack, numbers)))


def _replay(data: bytes, table: dict[bytes, _Numbers]) -> Steps[None]:
    """What a block of a run came to, into ``table``; yields now and then."""
    position = step = 0
    while position < len(data):
        size, count = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        key = data[position : position + size]
        position += size
        if count:
            numbers = unpack_from(f">{count}Q", data, position)
            position += count * _NUMBER.size
            table[key] = numbers[0] if count == 1 else numbers
        else:
            table.pop(key, None)
        step += 1
        if not step % STEP_KEYS:
            yield
    yield
