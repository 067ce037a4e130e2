"""Holds frames back until their data keys were asked for: a key reader may take its time, and the loop goes on.

Frames are read in the order they came, so one that waits holds those behind it; at most what was prefetched. A key that
can not be had holds nothing: what needs it is told as undecryptable (``crypto_failure_action``), and the next is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.client._api.errors import ReadError
from geminga.client._consuming.entries import Decryptor, EntryReader
from geminga.client._messages.entry_batch import EntryBatch
from geminga.runtime import Raised, attempt, get_logger, spawn
from geminga.wire.pulsar.frame import Frame

_log = get_logger(__name__)


def _tell_nobody(_: object) -> None:
    pass


class KeyGate:
    """Between the connection and the :class:`EntryReader` of one consumer of one topic that decrypts."""

    __slots__ = ("_decryptor", "_entries", "_held", "_on_messages", "_read_again", "_task", "_topic")

    def __init__(
        self,
        topic: str,
        entries: EntryReader,
        decryptor: Decryptor,
        *,
        on_messages: Callable[[list[Frame]], None],
        read_again: Callable[[ReadError], None],
    ) -> None:
        """``on_messages`` gets the frames that were held; ``read_again``: they can not be read, all comes again."""
        self._topic = topic
        self._on_messages = on_messages
        self._read_again = read_again
        self._entries = entries
        self._decryptor = decryptor
        self._held: list[Frame] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_holding(self) -> bool:
        """Whether frames are held back now."""
        return bool(self._held)

    def read(self, frames: list[Frame]) -> list[EntryBatch]:
        """As :meth:`EntryReader.read`, up to the first frame whose key is missing; the others come when it is here."""
        if self._held:
            self._held.extend(frames)
            return []
        entries = self._entries.read(frames)
        self._held = self._entries.take_unread()
        if self._held and self._task is None:
            self._task = spawn(self._fetch(), name=f"keys of {self._topic}")
        return entries

    def clear(self) -> list[Frame]:
        """Everything comes again; the frames that were held back."""
        held, self._held = self._held, []
        self._decryptor.forget_failures()
        return held

    def close(self) -> None:
        """Nothing is read any more."""
        self._held = []
        self._on_messages = self._read_again = _tell_nobody
        if self._task is not None:
            self._task.cancel()

    async def _fetch(self) -> None:
        try:
            while self._held:
                await self._decryptor.fetch(self._entries.missing_keys)
                frames, self._held = self._held, []
                if not frames:
                    continue  # everything comes again
                outcome = attempt(self._on_messages, frames)
                if isinstance(outcome, Raised):
                    _log.warning("%s: %s", self._topic, outcome, exc_info=outcome.error)
                    self._read_again(ReadError(f"{self._topic}: {outcome}"))
        finally:
            self._task = None
