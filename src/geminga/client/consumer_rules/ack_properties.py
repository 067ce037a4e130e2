"""What goes along with acknowledgments that wait: a broker keeps that of a cumulative one beside the position.

A cumulative acknowledgment that comes later replaces what an earlier one brought, with nothing if it brings nothing.
Of single ones, what waits together goes together; they are sent apart where there is a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EntryKey = tuple[int, int]
Properties = Mapping[str, int]

#: Of an acknowledgment that brings none.
NONE: Final[Properties] = {}


class AckProperties:
    """See the module."""

    __slots__ = ("_cumulative", "_is_open", "_single")

    def __init__(self) -> None:
        #: Of the newest cumulative acknowledgment that brought some, and its entry.
        self._cumulative: tuple[EntryKey, Properties] | None = None
        self._single: Properties = NONE
        #: Single acknowledgments are added that bring them.
        self._is_open = False

    def cumulative(self, entry: EntryKey, properties: Properties) -> None:
        """Everything up to there is acknowledged."""
        if self._cumulative is not None and entry < self._cumulative[0]:
            return
        self._cumulative = (entry, properties) if properties else None

    def begin(self, properties: Properties) -> None:
        """The single acknowledgments that are added from now on bring these."""
        self._single = {**self._single, **properties}
        self._is_open = True

    def end(self) -> None:
        """Those added from now on bring none."""
        self._is_open = False

    def taken(self, cumulative: EntryKey | None) -> tuple[Properties, Properties]:
        """What waits is sent, with a cumulative one of that entry: what goes with it, and with the single ones."""
        kept, self._cumulative = self._cumulative, None
        single = self._single
        if not self._is_open:
            self._single = NONE
        return (kept[1] if kept is not None and kept[0] == cumulative else NONE, single)

    def restore(self, cumulative: EntryKey | None, taken: tuple[Properties, Properties]) -> None:
        """What was taken waits again, with what came since."""
        if cumulative is not None and (self._cumulative is None or self._cumulative[0] < cumulative):
            self.cumulative(cumulative, taken[0])
        self._single = {**taken[1], **self._single}
