"""Which entries of a ledger a bookie has, as GET_LIST_OF_ENTRIES_OF_LEDGER carries it (AvailabilityOfEntriesOfLedger).

All numbers are big endian. A header of 64 bytes: version 0 (int32), how many groups follow (int32), zeros. Each group
has 24 bytes:

====== ==== ==========================================================================================
offset size what
====== ==== ==========================================================================================
0      8    first entry id of its first run
8      8    first entry id of its last run
16     4    entries in each of its runs
20     4    from the first entry of a run to that of the next; 0 where there is one run only
====== ==== ==========================================================================================

So a bookie that has every third entry of a striped ledger says it in one group. A run longer than an int32 is several
groups of one run each; so is one whose distance to the next is beyond an int32.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from geminga.model.bookie_port import ID_MAX
from geminga.model.errors import ProtocolError

_GROUP: Final = Struct(">qqii")
_HEADER: Final = Struct(">ii56x")
_HEADER_BYTES: Final = _HEADER.size
_INT_MAX: Final = (1 << 31) - 1
_VERSION: Final = 0
#: Of what a peer says: more runs than this are not unfolded (a ledger of Pulsar's has 50,000 entries).
RUNS_MAX: Final = 1 << 22

assert _HEADER_BYTES == 64


def encode_availability(runs: Iterable[range]) -> bytes:
    """Entry ids as ascending, disjoint runs of step 1 that do not touch each other."""
    groups: list[bytes] = []
    first = last = size = period = -1
    for start, count in _short(runs):
        fits = count == size and start - last == period if period > 0 else count == size and start - last <= _INT_MAX
        if first >= 0 and fits:
            period = start - last
            last = start
            continue
        if first >= 0:
            groups.append(_GROUP.pack(first, last, size, max(period, 0)))
        first, last, size, period = start, start, count, 0
    if first >= 0:
        groups.append(_GROUP.pack(first, last, size, max(period, 0)))
    return b"".join((_HEADER.pack(_VERSION, len(groups)), *groups))


def _short(runs: Iterable[range]) -> Iterable[tuple[int, int]]:
    """First entry and count of each run, none longer than an int32 holds."""
    for run in runs:
        start = run.start
        while start < run.stop:
            count = min(run.stop - start, _INT_MAX)
            yield start, count
            start += count


def decode_availability(data: bytes) -> list[range]:
    """The same, from a peer's bytes. Raises ProtocolError: cut short, of another version, out of order, too many."""
    if len(data) < _HEADER_BYTES:
        raise ProtocolError(f"a list of entries of {len(data)} bytes: its header has {_HEADER_BYTES}")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION or not 0 <= count <= (len(data) - _HEADER_BYTES) // _GROUP.size:
        raise ProtocolError(f"a list of entries of version {version}, {count} groups in {len(data)} bytes")
    runs: list[range] = []
    for index in range(count):
        first, last, size, period = _GROUP.unpack_from(data, _HEADER_BYTES + index * _GROUP.size)
        _check_group(first, last, size, period)
        starts = range(first, last + 1, period) if period else range(first, first + 1)
        if len(runs) + len(starts) > RUNS_MAX:
            raise ProtocolError(f"a list of entries of more than {RUNS_MAX} runs")
        for start in starts:
            if runs and start < runs[-1].stop:
                raise ProtocolError(f"a list of entries out of order: {start} behind {runs[-1]}")
            if runs and start == runs[-1].stop:
                runs[-1] = range(runs[-1].start, start + size)
            else:
                runs.append(range(start, start + size))
    return runs


def _check_group(first: int, last: int, size: int, period: int) -> None:
    fits = 0 <= first <= last and size > 0 and last <= ID_MAX - (size - 1)
    if fits and first == last and period == 0:
        return
    if not fits or period < size or (last - first) % period:
        raise ProtocolError(f"a group of entries from {first} to {last}, {size} each {period}")
