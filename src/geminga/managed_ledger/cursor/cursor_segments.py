"""Where the parts of a cursor's state lie on disk; putting whole ledgers away and bringing them back.

Only what is on disk as it is in memory can be put away: its parts are named by the newest durable marker and were not
changed since. So there is nothing to write, and a ledger is dropped within a call. Bringing one back reads its segments
from the cursor ledger; whoever asks meanwhile shares that read.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Protocol

from geminga.managed_ledger.cursor.cursor_operations import LoadDone
from geminga.managed_ledger.rules.cursor import CursorState, LedgerPart
from geminga.managed_ledger.rules.cursor_format import REF_BYTES, Refs, read_parts
from geminga.managed_ledger.shared.ports import Ledger
from geminga.model.errors import CorruptionError, LedgerClosedError, StorageError
from geminga.runtime import Contained, Part


class SegmentedCursor(Protocol):
    """A cursor, as far as it concerns this."""

    name: str
    state: CursorState

    @property
    def part(self) -> Part | None:
        """What is closed if its state breaks."""
        ...

    def pinned_ledgers(self) -> Collection[int]:
        """Ledgers whose state stays in memory now."""
        ...

    def on_memory_changed(self) -> None:
        """The memory of the state is to be counted anew."""
        ...


class CursorSegments:
    """See the module. Made with the first state that needs segments."""

    __slots__ = ("_cursor", "_ledger_bytes", "_loading", "_refs", "_source", "memory_bytes")

    def __init__(self, cursor: SegmentedCursor) -> None:
        self._cursor = cursor
        self._refs: Refs = {}
        #: The cursor ledger that they are entries of.
        self._source: Ledger | None = None
        #: Memory of each ledger when it was last written or loaded.
        self._ledger_bytes: dict[int, int] = {}
        #: Who waits for a ledger that is being brought back.
        self._loading: dict[int, list[LoadDone]] = {}
        #: About how much memory the state with segments takes, this index included.
        self.memory_bytes = 0

    @property
    def refs(self) -> Refs:
        """Entries of the cursor ledger by part."""
        return self._refs

    @property
    def source(self) -> Ledger | None:
        """The cursor ledger that holds them, open or not."""
        return self._source

    def written(self, source: Ledger, refs: Refs, rewritten: Collection[int] = ()) -> None:
        """A marker that names ``refs`` is durable, or was found so; ``rewritten``: ledgers whose parts are new."""
        state = self._cursor.state
        self._source, self._refs = source, refs
        known, self._ledger_bytes = self._ledger_bytes, {}
        away = state.acked.away or {}
        for ledger_id in {ledger_id for ledger_id, _ in refs}:
            if ledger_id not in away:
                found = known.get(ledger_id) if ledger_id not in rewritten else None
                self._ledger_bytes[ledger_id] = state.ledger_memory_bytes(ledger_id) if found is None else found
        self.memory_bytes = sum(self._ledger_bytes.values()) + len(refs) * REF_BYTES

    def forget_loaded(self) -> None:
        """A write failed: what is in memory is not on disk; what is put away stays where it was."""
        away = self._cursor.state.acked.away or {}
        self._refs = {part: ids for part, ids in self._refs.items() if part[0] in away}
        self._ledger_bytes.clear()
        self.memory_bytes = len(self._refs) * REF_BYTES

    # ---- putting away, bringing back

    def put_away(self, wanted_bytes: int) -> int:
        """Put away ledgers, least recently used first, until so much memory is free; returns how much is."""
        state = self._cursor.state
        pinned = self._cursor.pinned_ledgers()
        dirty = {ledger_id for ledger_id, _ in state.dirty_parts}
        freed = 0
        for ledger_id in state.ledger_ids:
            if freed >= wanted_bytes:
                break
            if ledger_id in self._ledger_bytes and ledger_id not in dirty and ledger_id not in pinned:
                state.put_away(ledger_id)
                freed += self._ledger_bytes.pop(ledger_id)
        self.memory_bytes -= freed
        return freed

    def load(self, ledger_id: int, done: LoadDone) -> None:
        """Bring a ledger back; ``done`` once it is in memory (or gone), possibly within the call, or with the error."""
        waiting = self._loading.get(ledger_id)
        if waiting is not None:
            waiting.append(done)
            return
        self._loading[ledger_id] = [done]
        self._read(ledger_id)

    def _read(self, ledger_id: int) -> None:
        source = self._source
        refs = {part: ids for part, ids in self._refs.items() if part[0] == ledger_id}
        if source is None:
            self._loaded(ledger_id, LedgerClosedError(f"cursor {self._cursor.name} has no ledger"))
            return
        steps = read_parts(refs)
        try:
            wanted = next(steps)
        except StopIteration:
            self._loaded(ledger_id, None)
            return
        self._step(ledger_id, source, refs, steps, wanted)

    def _step(
        self,
        ledger_id: int,
        source: Ledger,
        refs: Refs,
        steps: Generator[tuple[int, int], Sequence[bytes | None], list[LedgerPart]],
        wanted: tuple[int, int],
    ) -> None:
        def arrived(result: Sequence[bytes] | StorageError) -> None:
            # The bookies answer: what fails in here is not their failure.
            with Contained(self._cursor.part, "reading the state of a cursor"):
                take(result)

        def take(result: Sequence[bytes] | StorageError) -> None:
            if isinstance(result, StorageError):
                self._failed(ledger_id, refs, result)
                return
            try:
                following = steps.send(result)
            except StopIteration as stop:
                self._arrived(ledger_id, refs, stop.value)
            except CorruptionError as error:
                self._failed(ledger_id, refs, error)
            else:
                self._step(ledger_id, source, refs, steps, following)

        source.read(*wanted, arrived)

    def _failed(self, ledger_id: int, refs: Refs, error: StorageError) -> None:
        if self._is_at(refs):
            self._loaded(ledger_id, error)
        else:
            self._read(ledger_id)

    def _arrived(self, ledger_id: int, refs: Refs, parts: list[LedgerPart]) -> None:
        state = self._cursor.state
        if state.acked.find_away(ledger_id) is None:
            # Passed, trimmed or reset meanwhile.
            self._loaded(ledger_id, None)
            return
        if not self._is_at(refs):
            self._read(ledger_id)
            return
        try:
            state.bring_back(ledger_id, parts)
        except ValueError as error:
            self._loaded(ledger_id, CorruptionError(f"cursor {self._cursor.name}, ledger {ledger_id}: {error}"))
            return
        size_bytes = self._ledger_bytes[ledger_id] = state.ledger_memory_bytes(ledger_id)
        self.memory_bytes += size_bytes
        self._loaded(ledger_id, None)
        self._cursor.on_memory_changed()

    def _is_at(self, refs: Refs) -> bool:
        """Whether these parts still lie there: the cursor ledger may have been switched while they were read."""
        return all(self._refs.get(part) == ids for part, ids in refs.items())

    def _loaded(self, ledger_id: int, error: StorageError | None) -> None:
        for done in self._loading.pop(ledger_id):
            done(error)
