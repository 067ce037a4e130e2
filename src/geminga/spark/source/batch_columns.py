"""Where the messages of many batches lie and what their metadata say, found in columns: nothing is done per message.

A batch is, for each message: 4 bytes size of its metadata (big endian), ``SingleMessageMetadata``, payload. Nothing
says where the n-th message begins but the one before it. That payloads which are not small have one size is guessed
first. Else places that *look like* a beginning are searched, in all entries at once: metadata shorter than 256 bytes
have three zero bytes in front of their size, of which two lie at an even address, and a field that may come first
behind it. The heads at those places are read column by column; a place is a beginning only if the chain of messages
leads to it: from where its batch begins, message by message, to exactly the end of the entry, after exactly as many
messages as the entry says. Only time depends on the guess and the search.

An entry for which that does not come out is told apart: its messages are to be read one by one (long metadata, fields
in another order, unknown fields, broken ones). Numbers are read with eight bytes at a time.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from geminga.wire.pulsar.batches.batch_layout import HAS_KEY, IS_COMPACTED_OUT, IS_NULL_VALUE, KEY_IS_BASE64

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

#: Zero bytes that the caller leaves behind the last entry: no head that may begin in an entry reads further.
PAD_BYTES: Final = 1024
#: Bytes of the smallest message.
MESSAGE_BYTES_MIN: Final = 6
#: Places looked at for each message; with more, most payloads look like heads, and one by one is faster.
PLACES_MAX: Final = 16

#: Bytes a message from which on a walk from head to head costs less than the search.
GUESS_BYTES_MIN: Final = 400

_PROPERTY, _KEY, _PAYLOAD_SIZE = 0x0A, 0x12, 0x18
_EVENT_TIME, _ORDERING_KEY, _SEQUENCE_ID, _NULL_KEY = 0x28, 0x3A, 0x40, 0x50
#: Boolean fields: tag -> flag.
_FLAGS: Final = {0x20: IS_COMPACTED_OUT, 0x30: KEY_IS_BASE64, 0x48: IS_NULL_VALUE}
_IS_FIRST: Final = np.isin(np.arange(256), (_PROPERTY, _KEY, _PAYLOAD_SIZE))
_LONGEST_SHORT: Final = 127

_STOPS: Final = np.uint64(0x8080808080808080)
_ONE: Final = np.uint64(1)
#: Three steps that move the seven bits of each byte together: (what stays, what moves, how far).
_PACKING: Final = tuple(
    (np.uint64(stays), np.uint64(moves), np.uint64(bits))
    for stays, moves, bits in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class BatchColumns(NamedTuple):
    """Of each message, in order; places in the bytes that were given. A message without key has an empty one."""

    metadata_starts: Longs
    #: Where the payload begins, too.
    metadata_ends: Longs
    payload_ends: Longs
    key_starts: Longs
    key_ends: Longs
    #: As :class:`~geminga.client.EntryBatch` has them.
    flags: Bytes
    #: -1: none, as with the sequence ids.
    event_times_ms: Longs
    sequence_ids: Longs
    has_properties: Bools

    @classmethod
    def empty(cls, count: int) -> BatchColumns:
        """Of ``count`` messages, to be filled."""
        first, second, third, fourth, fifth = np.zeros((5, count), np.int64)
        times, sequence_ids = np.full((2, count), -1, np.int64)
        flags, has_properties = np.zeros(count, np.uint8), np.zeros(count, np.bool_)
        return cls(first, second, third, fourth, fifth, flags, times, sequence_ids, has_properties)

    def take(self, which: Bools) -> BatchColumns:
        """Some of the messages."""
        return BatchColumns._make(column[which] for column in self)

    def put(self, rows: Bools | list[int], others: BatchColumns) -> None:
        """Write ``others`` over the rows."""
        for mine, their in zip(self, others, strict=True):
            cast("NDArray[Any]", mine)[rows] = their


def read_batches(data: Bytes, starts: Longs, ends: Longs, counts: Longs) -> tuple[BatchColumns, Bools]:
    """The messages of the batches that lie at ``data[starts[i]:ends[i]]``, and which batches could be read.

    Of one that could not, what stands in the columns means nothing. ``data`` ends with ``PAD_BYTES`` of zeros.
    """
    total = int(counts.sum())
    guessed = _guessed(data, starts, ends, counts) if total else None
    places = guessed if guessed is not None else _places(data)
    if not total or len(places) > PLACES_MAX * total + PLACES_MAX:
        return BatchColumns.empty(total), np.zeros(len(starts), np.bool_)
    words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    heads = _heads(data, words, places)
    chosen, is_read = _chains(places, heads, starts, ends, counts)
    if not is_read.any():
        return BatchColumns.empty(total), is_read
    if len(chosen) < len(places):
        places, heads = places[chosen], _Heads._make(column[chosen] for column in heads)
    columns, is_known = _columns(data, words, places, heads)
    of_entry = np.repeat(np.flatnonzero(is_read), counts[is_read])
    is_read[of_entry[~is_known]] = False
    if len(places) == total:
        return columns, is_read
    # Some entries are missing: leave their rows out, as the caller fills them.
    whole = BatchColumns.empty(total)
    was_chained = np.zeros(len(starts), np.bool_)
    was_chained[of_entry] = True
    whole.put(np.repeat(was_chained, counts), columns)
    return whole, is_read


def _guessed(data: Bytes, starts: Longs, ends: Longs, counts: Longs) -> Longs | None:
    """Where the heads begin if every payload of an entry is as long as its first; None: they are not.

    A walk costs a tenth of a microsecond a message, the search as much a few hundred bytes.
    """
    if len(data) < GUESS_BYTES_MIN * int(counts.sum()):
        return None
    raw = data.data
    found: list[int] = []
    add = found.append
    for at, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True):
        try:
            step = _first_payload_bytes(raw, at) + 4
            if step * count > end - at:
                return None
            for _ in range(count):
                add(at)
                at += step + raw[at + 3]
        except IndexError:
            return None
        if at != end:
            return None
    places: Longs = np.array(found, np.int64)
    is_short = (data[places] | data[places + 1] | data[places + 2]) == 0
    return places if (is_short & _may_begin(data, places)).all() else None


def _first_payload_bytes(raw: memoryview, start: int) -> int:
    """Bytes of the payload whose head begins at ``start``; what is no plain head gives a number that leads nowhere."""
    at = start + 4
    if raw[at] == _KEY:
        at += 2 + raw[at + 1]
    value = shift = 0
    while shift < 35:
        at += 1
        value |= (raw[at] & 127) << shift
        shift += 7
        if raw[at] < 128:
            break
    return value


def _places(data: Bytes) -> Longs:
    """Where a head may begin, ascending."""
    # Pairs as memory has them: numpy copies what is not aligned before it looks at it.
    base = data.ctypes.data & 1
    zeros = data[base : base + (len(data) - base) // 2 * 2].view(np.uint16) == 0
    whole = len(zeros) // 8 * 8
    # Eight at a time, as next to none is zero. The last bytes are padding.
    eights = np.flatnonzero(zeros[:whole].view(np.uint64) != 0)
    found = np.flatnonzero(zeros[:whole].reshape(-1, 8)[eights])
    at: Longs = base + 2 * (8 * eights[found >> 3] + (found & 7))
    at = at[at < len(data) - PAD_BYTES]
    even = at[data[at + 2] == 0]
    odd = at[at > 0] - 1
    odd = odd[data[odd] == 0]
    places = np.sort(np.concatenate((even, odd)))
    return cast("Longs", places[_may_begin(data, places)])


def _may_begin(data: Bytes, places: Longs) -> Bools:
    found: Bools = _IS_FIRST[data[places + 4]] & (data[places + 3] > 1)
    return found


class _Heads(NamedTuple):
    """The first part of some heads: properties, key, size of the payload."""

    ends: Longs
    #: Behind the size of the payload.
    rest: Longs
    stops: Longs
    key_starts: Longs
    key_ends: Longs
    has_key: Bools
    has_properties: Bools
    is_known: Bools


def _heads(data: Bytes, words: Words, places: Longs) -> _Heads:
    ends = places + 4 + data[places + 3]
    at = places + 4
    is_known = np.ones(len(places), np.bool_)
    has_properties = data[at] == _PROPERTY
    if has_properties.any():
        _pass_properties(data, at, ends, np.flatnonzero(has_properties), is_known)
    has_key = (data[at] == _KEY) & (at < ends)
    key_starts = key_ends = at
    if has_key.any():
        sizes = data[at + 1].astype(np.int64)
        is_long = sizes > _LONGEST_SHORT
        key_starts = at + 2
        if (is_long & has_key).any():
            sizes = np.where(is_long, sizes & 127 | data[at + 2].astype(np.int64) << 7, sizes)
            key_starts = key_starts + is_long
        key_starts = np.where(has_key, key_starts, at)
        key_ends = np.where(has_key, key_starts + sizes, at)
    # A key that does not fit leads to the end, where no size of the payload can be.
    at = np.minimum(key_ends, ends)
    is_known &= (at < ends) & (data[at] == _PAYLOAD_SIZE)
    sizes, widths = _varints(words[at + 1])
    rest = at + 1 + widths
    stops = ends + sizes
    is_known &= (widths > 0) & (rest <= ends) & (stops <= len(data) - PAD_BYTES)
    return _Heads(ends, rest, stops, key_starts, key_ends, has_key, has_properties, is_known)


def _pass_properties(data: Bytes, at: Longs, ends: Longs, rows: Longs, is_known: Bools) -> None:
    """Move ``at`` of the rows behind their properties; those that are none of a name and a value are not known."""
    while len(rows):
        here = at[rows]
        size = data[here + 1].astype(np.int64)
        name = data[here + 3].astype(np.int64)
        behind_name = here + 4 + name
        value = data[behind_name + 1].astype(np.int64)
        fits = (size <= _LONGEST_SHORT) & (name + value + 4 == size) & (here + 2 + size <= ends[rows])
        fits &= (data[here + 2] == _PROPERTY) & (data[behind_name] == _KEY)
        is_known[rows[~fits]] = False
        rows = rows[fits]
        at[rows] += 2 + size[fits]
        rows = rows[(at[rows] < ends[rows]) & (data[at[rows]] == _PROPERTY)]


def _chains(places: Longs, heads: _Heads, starts: Longs, ends: Longs, counts: Longs) -> tuple[Longs, Bools]:
    """Which of the places are beginnings of messages, and of which entries all were found."""
    first = np.searchsorted(places, starts)
    last = np.searchsorted(places, ends)
    is_linked = heads.is_known.copy()
    is_linked[:-1] &= heads.stops[:-1] == places[1:]
    broken = np.concatenate(([0], np.cumsum(~is_linked)))
    # As a rule every place in an entry is a beginning, and leads to the next one.
    is_read = (last - first == counts) & (counts > 0)
    at = np.where(is_read, first, 0)
    behind = np.where(is_read, last - 1, 0)
    if len(places):
        is_read &= (places[at] == starts) & (heads.stops[behind] == ends) & heads.is_known[behind]
        is_read &= broken[behind] == broken[at]
    if is_read.all():
        return (np.arange(len(places)) if int(counts.sum()) == len(places) else _ranges(first, last)), is_read
    return _followed(places, heads, is_read, (first, last, starts, ends, counts))


def _followed(
    places: Longs, heads: _Heads, is_read: Bools, entries: tuple[Longs, Longs, Longs, Longs, Longs]
) -> tuple[Longs, Bools]:
    """The same for entries with places that only look like beginnings: follow the chain."""
    nexts = np.searchsorted(places, heads.stops)
    is_place = heads.is_known & (nexts < len(places))
    is_place[is_place] = places[nexts[is_place]] == heads.stops[is_place]
    following = np.where(is_place, nexts, -1).tolist()
    chosen: list[Longs] = []
    for entry, (first, last, start, end, count) in enumerate(zip(*(x.tolist() for x in entries), strict=True)):
        if is_read[entry]:
            chosen.append(np.arange(first, last))
            continue
        if not first < last or places[first] != start or not count:
            continue
        chain = [first]
        while len(chain) < count and (at := following[chain[-1]]) > 0:
            chain.append(at)
        if len(chain) == count and heads.is_known[chain[-1]] and heads.stops[chain[-1]] == end:
            is_read[entry] = True
            chosen.append(np.array(chain, np.int64))
    return (np.concatenate(chosen) if chosen else np.zeros(0, np.int64)), is_read


def _ranges(first: Longs, last: Longs) -> Longs:
    return np.concatenate([np.arange(one, other) for one, other in zip(first.tolist(), last.tolist(), strict=True)])


def _columns(data: Bytes, words: Words, places: Longs, heads: _Heads) -> tuple[BatchColumns, Bools]:
    """What the heads at the places say, and which of them can be understood."""
    count = len(places)
    flags = np.where(heads.has_key, np.uint8(HAS_KEY), np.uint8(0))
    times, sequence_ids = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    is_known = np.ones(count, np.bool_)
    at = heads.rest.copy()
    rows = np.flatnonzero(at < heads.ends)
    while len(rows):
        here = at[rows]
        tags = data[here]
        values, widths = _varints(words[here + 1])
        behind = here + 1 + widths
        is_read = widths > 0
        for tag in np.flatnonzero(np.bincount(tags)).tolist():
            of_tag = tags == tag
            if tag == _EVENT_TIME:
                times[rows[of_tag]] = values[of_tag]
            elif tag == _SEQUENCE_ID:
                sequence_ids[rows[of_tag]] = values[of_tag]
            elif tag == _ORDERING_KEY:
                behind = np.where(of_tag, behind + values, behind)
            elif tag in _FLAGS:
                flag = np.uint8(_FLAGS[tag])
                flags[rows[of_tag]] &= ~flag
                flags[rows[of_tag & (values != 0)]] |= flag
            elif tag != _NULL_KEY:
                is_read &= ~of_tag
        is_read &= behind <= heads.ends[rows]
        if not is_read.all():
            is_known[rows[~is_read]] = False
            rows, behind = rows[is_read], behind[is_read]
        at[rows] = behind
        rows = rows[behind < heads.ends[rows]]
    columns = BatchColumns(
        places + 4,
        heads.ends,
        heads.stops,
        heads.key_starts,
        heads.key_ends,
        flags,
        times,
        sequence_ids,
        heads.has_properties,
    )
    return columns, is_known


def _varints(words: Words) -> tuple[Longs, Longs]:
    """Of each word, the number that its first bytes are and how many they are; 0 bytes: more than eight."""
    stops = ~words & _STOPS
    lowest = stops & (~stops + _ONE)
    kept = words & (lowest - _ONE) & ~_STOPS
    for stays, moves, bits in _PACKING:
        kept = (kept & stays) | ((kept & moves) >> bits)
    # The lowest stop is bit 8 * bytes - 1: as a float, its exponent is 8 * bytes.
    widths = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) >> 3
    return kept.astype(np.int64), widths
