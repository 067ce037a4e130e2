"""Copies entries of settled fragments, byte for byte, from whoever has them to who is to have them.

A copy goes out only if its digest matches. What a bookie does not answer in time counts as failed, whatever it says
later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.core.reads import worst_error
from geminga.model.bookie_port import BookiePool, EntryData, FenceDone
from geminga.model.errors import CorruptionError, StorageError, UnknownEntryError
from geminga.replication import crash_points
from geminga.replication.core.copying import DurableCopies, sources_of
from geminga.replication.core.fragments import SettledFragment
from geminga.replication.core.pacing import ByteRate
from geminga.replication.counters import ReplicationCounters
from geminga.runtime import answer_of, crash_point, get_logger, wait_ms
from geminga.runtime.ports import Clock
from geminga.wire.bookkeeper.digest import EntryDigest, digest_for, master_key
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata

#: Of entries that are read from one bookie at once.
READ_BYTES_MAX: Final = 4 * 1024 * 1024
#: A bookie that says nothing for so long has failed.
ANSWER_S: Final = 30.0
#: A failure after so long is none of the bookie's answers: who asks for us gave it up.
UNANSWERED_S: Final = 3.0
#: Whoever said nothing is asked behind all others for so long: each batch would wait for it first.
SILENT_S: Final = 600.0

_log = get_logger(__name__)


class NoAnswerError(StorageError):
    """A bookie said nothing in time."""


class NotTakenError(StorageError):
    """Who was to have copies did not take them, or say which: ``bookie_ids``."""

    def __init__(self, message: str, bookie_ids: Iterable[str]) -> None:
        super().__init__(message)
        self.bookie_ids = tuple(bookie_ids)


class CopiedLedger(NamedTuple):
    """What is needed to read and write entries of a ledger."""

    ledger_id: int
    distribution: Distribution
    digest: EntryDigest
    master_key: bytes

    @classmethod
    def of(cls, ledger_id: int, metadata: LedgerMetadata) -> CopiedLedger:
        """From its metadata."""
        return cls(
            ledger_id,
            Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            digest_for(metadata.digest_type, metadata.password),
            master_key(metadata.password),
        )


class Copier:
    """See the module. Its errors of bookies are plain StorageErrors: none of them says that the ledger is gone."""

    __slots__ = ("_bookies", "_clock", "_counters", "_rate", "_silent")

    def __init__(self, bookies: BookiePool, clock: Clock, rate: ByteRate, counters: ReplicationCounters) -> None:
        self._bookies = bookies
        self._clock = clock
        self._rate = rate
        self._counters = counters
        #: Bookies that said nothing when they were asked for entries, and until when they are asked last.
        self._silent: dict[str, float] = {}

    async def fence(self, ledger: CopiedLedger, bookie_ids: Iterable[str]) -> None:
        """Have bookies that are new to a closed ledger refuse whoever still takes it for open. Raises NotTakenError."""
        for bookie_id in bookie_ids:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await answer_of(partial(self._fence, ledger, bookie_id))
            except (TimeoutError, StorageError) as error:
                why = str(error) or f"it did not answer in {ANSWER_S:g} s"
                raise NotTakenError(f"bookie {bookie_id} could not be fenced: {why}", [bookie_id]) from error
            crash_point(crash_points.FENCED)

    def _fence(self, ledger: CopiedLedger, bookie_id: str, done: FenceDone) -> None:
        self._bookies.get(bookie_id).fence(ledger.ledger_id, master_key=ledger.master_key, done=done)

    async def listed(self, ledger_id: int, bookie_id: str) -> Sequence[range]:
        """Which entries a bookie has; raises what it says, NoSuchLedgerError too, or NoAnswerError."""
        bookie, began_s = self._bookies.get(bookie_id), self._clock.monotonic()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer_of(lambda done: bookie.list_entries(ledger_id, done=done))
        except TimeoutError as error:
            raise NoAnswerError(f"bookie {bookie_id} did not answer in {ANSWER_S} s") from error
        except StorageError as error:
            if self._is_unanswered(began_s):
                raise NoAnswerError(f"{error}") from error
            raise

    async def copy(
        self,
        ledger: CopiedLedger,
        fragment: SettledFragment,
        shares: Mapping[str, Sequence[int]],
        live: Collection[str],
    ) -> None:
        """Give each bookie of ``shares`` those entries; all are durable when it returns.

        Raises NotTakenError, or another StorageError if an entry can not be read.
        """
        remaining = sorted({entry_id for share in shares.values() for entry_id in share})
        while remaining:
            entries = await self._read(ledger, fragment, remaining, shares.keys(), live)
            await self._write(ledger, entries, shares)
            remaining = [entry_id for entry_id in remaining if entry_id not in entries]
            size_bytes = sum(map(len, entries.values()))
            self._counters.entries_copied += len(entries)
            self._counters.bytes_copied += size_bytes
            self._counters.batches_copied += 1
            crash_point(crash_points.COPIED_BATCH)
            wait_s = self._rate.take(size_bytes, self._clock.monotonic())
            if wait_s > 0:
                await wait_ms(wait_s * 1000)

    # ---- reading

    async def _read(
        self,
        ledger: CopiedLedger,
        fragment: SettledFragment,
        entry_ids: Sequence[int],
        targets: Collection[str],
        live: Collection[str],
    ) -> dict[int, bytes]:
        """Sound copies of the first of these entries, as many as :data:`READ_BYTES_MAX` allows; one at least."""
        indexes = [index for index, bookie_id in enumerate(fragment.ensemble) if bookie_id in targets]
        sources = {
            entry_id: sorted(sources_of(ledger.distribution, fragment, entry_id, indexes, live), key=self._is_silent)
            for entry_id in entry_ids
        }
        errors: dict[int, list[StorageError]] = {}
        found: dict[int, bytes] = {}
        wanted = list(entry_ids)
        while wanted:
            by_bookie: dict[str, list[int]] = {}
            for entry_id in wanted:
                if not sources[entry_id]:
                    self._counters.unreadable_entries += 1
                    worst = worst_error(errors[entry_id])
                    raise UnknownEntryError(f"entry {ledger.ledger_id}:{entry_id} can not be copied now: {worst}")
                by_bookie.setdefault(sources[entry_id].pop(0), []).append(entry_id)
            wanted = []
            for bookie_id, asked in by_bookie.items():
                for entry_id, result in await self._ask(ledger, bookie_id, asked):
                    if isinstance(result, StorageError):
                        errors.setdefault(entry_id, []).append(result)
                        wanted.append(entry_id)
                    else:
                        found[entry_id] = result
        return found

    async def _ask(
        self, ledger: CopiedLedger, bookie_id: str, entry_ids: Sequence[int]
    ) -> list[tuple[int, bytes | StorageError]]:
        """The first of ``entry_ids``, each checked, or why there is none; those that were left out are not named."""
        answered: asyncio.Future[Sequence[EntryData | StorageError]] = asyncio.get_running_loop().create_future()

        def on_read(results: Sequence[EntryData | StorageError]) -> None:
            if not answered.done():
                answered.set_result(results)

        ids, began_s = _ids(entry_ids), self._clock.monotonic()
        self._bookies.get(bookie_id).read_entries(ledger.ledger_id, ids, on_read, bytes_max=READ_BYTES_MAX)
        try:
            async with asyncio.timeout(ANSWER_S):
                results = await answered
        except TimeoutError:
            results = [StorageError(f"bookie {bookie_id} did not answer in {ANSWER_S} s")] * len(entry_ids)
        if self._is_unanswered(began_s) and all(isinstance(result, StorageError) for result in results):
            self._silent[bookie_id] = self._clock.monotonic() + SILENT_S
        return [
            (entry_id, self._checked(ledger, bookie_id, entry_id, result))
            for entry_id, result in zip(entry_ids, results, strict=False)
        ]

    def _is_unanswered(self, began_s: float) -> bool:
        return self._clock.monotonic() - began_s >= UNANSWERED_S

    def _is_silent(self, bookie_id: str) -> bool:
        return self._silent.get(bookie_id, 0.0) > self._clock.monotonic()

    def _checked(
        self, ledger: CopiedLedger, bookie_id: str, entry_id: int, result: EntryData | StorageError
    ) -> bytes | StorageError:
        if isinstance(result, StorageError):
            return result
        payload = ledger.digest.payload(ledger.ledger_id, entry_id, result)
        if isinstance(payload, CorruptionError):
            self._counters.damaged_copies += 1
            _log.error("bookie %s: %s: not spread", bookie_id, payload)
            return payload
        return bytes(result)

    # ---- writing

    async def _write(
        self, ledger: CopiedLedger, entries: Mapping[int, bytes], shares: Mapping[str, Sequence[int]]
    ) -> None:
        parts = {name: [entry_id for entry_id in share if entry_id in entries] for name, share in shares.items()}
        parts = {name: part for name, part in parts.items() if part}
        copies = DurableCopies(parts)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_added(bookie_id: str, entry_ids: Sequence[int], error: StorageError | None) -> None:
            copies.answer(bookie_id, entry_ids, error)
            if copies.is_done and not answered.done():
                answered.set_result(None)

        for bookie_id, part in parts.items():
            self._bookies.get(bookie_id).add_entries(
                ledger.ledger_id,
                _ids(part),
                [entries[entry_id] for entry_id in part],
                master_key=ledger.master_key,
                recovery=True,
                done=partial(on_added, bookie_id),
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                await answered
        except TimeoutError as error:
            story = f"ledger {ledger.ledger_id}: copies were not durable after {ANSWER_S} s"
            raise NotTakenError(story, copies.failed) from error
        if copies.error is not None:
            story = f"ledger {ledger.ledger_id}: a copy failed: {copies.error}"
            raise NotTakenError(story, copies.failed) from copies.error


def _ids(entry_ids: Sequence[int]) -> Sequence[int]:
    """As the port wants them: a range where they follow each other."""
    first, last = entry_ids[0], entry_ids[-1]
    return range(first, last + 1) if last - first + 1 == len(entry_ids) else tuple(entry_ids)
