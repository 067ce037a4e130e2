"""The ledger that a cursor's state is appended to: segments, then the marker that makes them count."""

from __future__ import annotations

from typing import Final

from geminga.managed_ledger.cursor.cursor_segments import CursorSegments
from geminga.managed_ledger.rules.cursor_format import Refs, WritePlan
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.entry import AckDone
from geminga.managed_ledger.shared.ports import AddsDone, OpenLedger
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import StorageError
from geminga.runtime import answer_of, crash_point

NO_REFS: Final[Refs] = {}


class CursorLedger:
    """One after another; made with the first state that is written."""

    __slots__ = ("_begun_ms", "_services", "appended", "handle", "saved_bytes")

    def __init__(self, services: StorageServices) -> None:
        self._services = services
        self._begun_ms = 0
        #: The one in force, if this process may append to it.
        self.handle: OpenLedger | None = None
        #: Entries of the newest ledger, its segments and markers, that this process wrote.
        self.appended = 0
        #: Bytes of the newest save: its marker and the segments that went with it; 0: none by this process.
        self.saved_bytes = 0

    @property
    def writable(self) -> OpenLedger | None:
        """The one in force if it takes more; None: a new one is due."""
        handle = self.handle
        return None if handle is None or handle.error is not None or self._is_full() else handle

    def _is_full(self) -> bool:
        config = self._services.config
        age_ms = self._services.clock.monotonic() * 1000 - self._begun_ms
        return self.appended >= config.cursor_max_entries_per_ledger or age_ms >= config.cursor_rollover_seconds * 1000

    def begin(self) -> None:
        """A new ledger was made; it is in force once :attr:`handle` is set."""
        self.appended = 0
        self._begun_ms = int(self._services.clock.monotonic() * 1000)

    def append_segments(self, handle: OpenLedger, plan: WritePlan) -> int:
        """The entry id of the first; -1 without any."""
        if not plan.segments:
            return -1
        first = handle.append(plan.segments, _ignore)
        crash_point(points.CURSOR_SEGMENTS_APPENDED)
        self.appended += len(plan.segments)
        return first

    def append_marker(self, handle: OpenLedger, plan: WritePlan, refs: Refs, marked: AddsDone) -> None:
        """``marked`` is called when the marker is durable: the segments that ``refs`` names count."""
        marker = plan.marker(refs)
        self.saved_bytes = len(marker) + sum(map(len, plan.segments))
        handle.append([marker], marked)
        crash_point(points.CURSOR_MARKER_APPENDED)
        self.appended += 1

    async def write_whole(self, handle: OpenLedger, plan: WritePlan, segments: CursorSegments | None) -> Refs:
        """Every part, those that are put away copied as they are, and a marker. Raises StorageError."""
        copied, plan.kept = plan.kept, {}
        refs = plan.refs(self.append_segments(handle, plan))
        if segments is not None and segments.source is not None:
            for part, entry_ids in copied.items():
                pieces = [payload for i in entry_ids for payload in await segments.source.read_entries(i, i)]
                first = handle.append(pieces, _ignore)
                crash_point(points.CURSOR_SEGMENTS_COPIED)
                self.appended += len(pieces)
                refs[part] = tuple(range(first, first + len(pieces)))

        def append(done: AckDone) -> None:
            self.append_marker(handle, plan, refs, lambda _first, _count, error: done(error))

        await answer_of(append)
        return refs


def leave(ledger: CursorLedger | None) -> OpenLedger | None:
    """What was in force, which is written no more."""
    if ledger is None:
        return None
    handle, ledger.handle = ledger.handle, None
    return handle


def _ignore(_first: int, _count: int, _error: StorageError | None) -> None:
    """A failed segment fails the marker behind it."""
