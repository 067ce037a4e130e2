"""Ledger ids, from BookKeeper's generators in every metadata store: the counters of sequential nodes.

Below ``/ledgers/idgen`` as long as they are below 2^31 - 1, then below the greatest ``/ledgers/idgen-long/HOB-h``,
where the id is h * 2^32 + the counter. A counter can not be set, only used up (docs/formats/ledger-metadata.md, Ids).

Who makes many ledgers at once takes their ids in groups: while one request is under way others wait, and the next one
is for all of them. None is taken that nobody waits for.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

from geminga.bookkeeper import crash_points
from geminga.metadata import cas
from geminga.metadata.ports import SEQUENCES_MAX, MetadataStore
from geminga.model.errors import BadVersionError, CorruptionError, MetadataError, StorageError, UnknownOutcomeError
from geminga.runtime import again, crash_point, spawn
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT, SHORT_ID_LIMIT

ID_GENERATOR_PATH: Final = f"{LEDGERS_ROOT}/idgen"
#: It is there once ids need more than 31 bits.
LONG_ID_GENERATOR_PATH: Final = f"{LEDGERS_ROOT}/idgen-long"
#: Counters of one generator below this are ids, as Java's int holds them.
COUNTER_LIMIT: Final = SHORT_ID_LIMIT
#: Attempts at an id before giving up.
ID_ATTEMPTS_MAX: Final = 64
#: Ids that are used up one by one to get above an old one; beyond that the high bits are raised.
IDS_SPENT_MAX: Final = 20_000
_HIGH_BITS_LIMIT: Final = 1 << 31

_HIGH: Final = re.compile(r"HOB-(\d{10})")


class LedgerIds:
    """Hands out ledger ids: never one twice, ascending over all clients of the store."""

    __slots__ = ("_high", "_is_asking", "_store", "_waiting")

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        #: High bits of what is given out now, 0: short ids; -1: not looked yet.
        self._high = -1
        #: Told high bits and counter; None: whether one was taken is not known. Bounded by the ledgers that are made.
        self._waiting: deque[asyncio.Future[tuple[int, int] | None]] = deque()
        self._is_asking = False

    async def next_id(self, newer_than: int = -1) -> int:
        """An id above ``newer_than`` that nobody ever had. Raises MetadataError, CorruptionError.

        What is not above: another client has gone on to long ids, or the store was restored from an older backup.
        """
        if self._high < 0:
            await _take_over_old_counter(self._store)
            self._high = await _high_bits(self._store)
        for _ in range(ID_ATTEMPTS_MAX):
            taken = await self._take()
            if taken is None:
                continue
            high, counter = taken
            if not 0 <= counter < COUNTER_LIMIT:
                self._high = max(self._high, high + 1, await _high_bits(self._store))
                continue
            crash_point(crash_points.IDS_TAKEN)
            ledger_id = (high << 32) + counter
            if ledger_id > newer_than:
                return ledger_id
            await keep_ids_above(self._store, newer_than)
            self._high = await _high_bits(self._store)
        raise MetadataError(f"no ledger id after {ID_ATTEMPTS_MAX} attempts at {_generator_path(self._high)}")

    def _take(self) -> asyncio.Future[tuple[int, int] | None]:
        """High bits and a counter below them, which are nobody else's; with the others who ask now."""
        told: asyncio.Future[tuple[int, int] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(told)
        if not self._is_asking:
            self._is_asking = True
            spawn(self._ask(), name="ledger-ids")
        return told

    async def _ask(self) -> None:
        group: list[asyncio.Future[tuple[int, int] | None]] = []
        try:
            while self._waiting:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), SEQUENCES_MAX))]
                await self._ask_for([told for told in group if not told.done()])
        finally:
            self._is_asking = False
            # Ended in the midst of it: nobody waits for what never comes.
            for told in (*group, *self._waiting):
                if not told.done():
                    told.set_exception(MetadataError("asking for ledger ids was ended"))
            self._waiting.clear()

    async def _ask_for(self, group: list[asyncio.Future[tuple[int, int] | None]]) -> None:
        if not group:
            return
        high = self._high
        answers: list[tuple[int, int] | StorageError | None]
        try:
            counters = await self._store.take_sequences(_generator_path(high), len(group))
            answers = [(high, counter) for counter in counters]
        except (BadVersionError, UnknownOutcomeError):
            answers = [None] * len(group)
        except StorageError as error:
            # Each has his own: what all of them raise would have the frames of all.
            answers = [again(error) for _ in group]
        for told, answer in zip(group, answers, strict=True):
            if told.done():
                continue  # an id that nobody waits for any more is lost
            if isinstance(answer, StorageError):
                told.set_exception(answer)
            else:
                told.set_result(answer)


async def next_ledger_id(store: MetadataStore) -> int:
    """A number that no id ever given out reaches. Raises MetadataError, CorruptionError."""
    high = await _high_bits(store)
    counter = await store.next_sequence(_generator_path(high))
    return (high << 32) + counter if high else max(counter, await _old_counter(store))


async def keep_ids_above(store: MetadataStore, ledger_id: int) -> int | None:
    """Make sure that only greater ids are given out from now on; the next one so far if that had to be changed.

    Ids that entries are stored under must never come again, also if the store was restored from an older backup.
    """
    before = await next_ledger_id(store)
    if before > ledger_id:
        return None
    await _raise_ids(store, ledger_id)
    return before


async def _high_bits(store: MetadataStore) -> int:
    """Of the generator that gives out ids; 0: the short one."""
    names = await store.children(LONG_ID_GENERATOR_PATH)
    found = [int(match[1]) for name in names if (match := _HIGH.fullmatch(name)) is not None]
    if found:
        return max(found)
    return 1 if await store.exists(LONG_ID_GENERATOR_PATH) else 0


def _generator_path(high: int) -> str:
    return ID_GENERATOR_PATH if not high else f"{LONG_ID_GENERATOR_PATH}/HOB-{high:010d}"


async def _raise_ids(store: MetadataStore, ledger_id: int) -> None:
    """Get the counter above an id, by using up ids or by other high bits. Raises MetadataError."""
    for _ in range(ID_ATTEMPTS_MAX):
        high = await _high_bits(store)
        wanted = ledger_id + 1 - (high << 32)
        missing = wanted - await store.next_sequence(_generator_path(high))
        if missing <= 0:
            crash_point(crash_points.IDS_RAISED)
            return
        if missing > IDS_SPENT_MAX or wanted >= COUNTER_LIMIT:
            high = (ledger_id >> 32) + 1
            if high >= _HIGH_BITS_LIMIT:
                raise MetadataError(f"there are no ledger ids above {ledger_id}")
            await cas.put_if_absent(store, _generator_path(high), b"")
        else:
            from geminga.metadata.counters import use_up  # rarely needed

            await use_up(store, _generator_path(high), wanted)
    raise MetadataError(f"ledger ids could not be brought above {ledger_id} in {ID_ATTEMPTS_MAX} attempts")


async def _take_over_old_counter(store: MetadataStore) -> None:
    """Begin above the number that counted before there were generators, then drop it. Raises CorruptionError."""
    free = await _old_counter(store)
    if free:
        await _raise_ids(store, free - 1)
        await cas.update(store, ID_GENERATOR_PATH, lambda value: b"" if value else None)


async def _old_counter(store: MetadataStore) -> int:
    node = await store.get(ID_GENERATOR_PATH)
    if node is None or not node.value:
        return 0
    if not node.value.isdigit():
        raise CorruptionError(f"{ID_GENERATOR_PATH}: expected a decimal number, found {node.value[:40]!r}")
    return int(node.value)
