"""Reads [start, end) of one topic: entries and which of their messages belong to the range.

A range ends at the first id at or behind its end, or when the broker says that nothing below the end is left (the end
may name an entry that readers never get: a marker, an aborted message, one that was compacted away). A reader that
loses its connection goes on where it was.
"""

from __future__ import annotations

from typing import Final

from geminga.client import (
    BatchSource,
    Client,
    EntryBatch,
    EntryStream,
    FileKeyDecryptor,
    TopicNotFound,
    open_batches,
)
from geminga.client.consumer_rules.entry_window import PERMITS_MAX
from geminga.runtime import get_logger
from geminga.spark.source.compacted import is_held_compacted
from geminga.spark.source.entry_rows import Piece
from geminga.spark.source.positions import first_position, lost_text
from geminga.spark.source_rules.errors import DataLossError, ReadTimeoutError
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition
from geminga.spark.source_rules.options import ReaderConfiguration
from geminga.spark.source_rules.planner import TopicRange

_log = get_logger(__name__)

#: After so long without an entry the broker is asked whether there is anything left, milliseconds; doubled each time.
FIRST_WAIT_MS: Final = 250
#: Of the blocks that entries are read into, some of which are kept; a larger Arrow batch is put together of copies.
BLOCK_BYTES_MAX: Final = 4 * 1024 * 1024
#: This part of the window is taken at once, so that the rest is on its way.
_WINDOW_PART: Final = 4


class RangeReader:
    """Reads one range once; runs on the client's loop."""

    def __init__(
        self, client: Client, wanted: TopicRange, config: ReaderConfiguration, *, is_start_known: bool = False
    ) -> None:
        """``is_start_known``: nothing can be missing at the start, as somebody watched the topic from there on."""
        self._client = client
        self._range = wanted
        self._config = config
        # A piece that is not the first one can be missing, too: its ledger may have gone since the batch was planned.
        self._is_start_known = is_start_known or wanted.start.ledger_id < 0
        self._stream: EntryStream[EntryBatch] | None = None
        self._source: BatchSource | None = None
        self._is_done = False
        #: What is worth the way from the loop to the task.
        self._bytes_min = min(config.arrow_batch_bytes, config.window_bytes // _WINDOW_PART)
        #: The last entry that came; before the first one, what lies before the range.
        self._last = (wanted.start.ledger_id, wanted.start.entry_id - 1)
        #: Entries of the ledgers that were closed when the reading began; empty: the broker does not tell.
        self._lengths: list[tuple[int, int]] = []

    async def open(self) -> None:
        """Raises what subscribing raises."""
        config, start = self._config, self._range.start
        decryptor: FileKeyDecryptor | None = None
        if config.private_key_path:
            runtime = self._client.runtime
            decryptor = FileKeyDecryptor(runtime.clock, runtime.threads, config.private_key_path)
        stream: EntryStream[EntryBatch] = self._client.entry_stream(
            self._range.topic,
            start.entry,
            window_bytes=config.window_bytes,
            permits_max=min(config.queue_messages or PERMITS_MAX, PERMITS_MAX),
            end=self._range.end.entry,
            name=config.name,
            is_read_compacted=config.is_read_compacted,
        )
        stream.borrow(min(config.arrow_batch_bytes, BLOCK_BYTES_MAX))
        self._source = await open_batches(stream, decryptor, are_laid_out=False)
        self._stream = stream
        # A compacted topic is read from where it was compacted to, whatever of its ledgers is there.
        if self._range.start.ledger_id != self._range.end.ledger_id and not config.is_read_compacted:
            self._lengths = await stream.ledger_lengths(start.ledger_id)

    async def next(self) -> list[Piece] | None:
        """What came next, at least one entry; None: the range was read to its end.

        Raises DataLossError, ReadTimeoutError, and the client's errors for what can not be read.
        """
        if self._stream is None:
            try:
                await self.open()
            except TopicNotFound as error:
                self._lost(f"{self._range.topic} was deleted before {self._range.end} was reached: {error}")
                return None
        stream = self._stream
        assert stream is not None
        waited_ms = 0
        wait_ms = FIRST_WAIT_MS
        while not self._is_done:
            entries = await stream.take(wait_ms, self._bytes_min)
            await self._check_start()
            self._check_chunks()
            for entry in entries:
                if entry.key[0] != self._last[0]:
                    await self._check_passed(entry.key)
                self._last = entry.key
            pieces = self._wanted(entries)
            if pieces:
                return pieces
            if entries or self._is_done or self._is_seen():
                continue
            waited_ms += wait_ms
            if await self._is_nothing_left():
                break
            if waited_ms >= self._config.poll_timeout_ms:
                raise ReadTimeoutError(
                    f"{self._range.topic}: the broker has messages below {self._range.end} and sent none for "
                    f"{waited_ms} ms (pollTimeoutMs)"
                )
            wait_ms = max(1, min(2 * wait_ms, self._config.poll_timeout_ms - waited_ms))
        self._is_done = True
        if self._last < self._range.end.entry:
            await self._check_passed(self._range.end.entry)
            self._last = self._range.end.entry
        return None

    async def close(self) -> None:
        """Harmless twice."""
        if self._stream is not None:
            await self._stream.close()

    def _wanted(self, entries: list[EntryBatch]) -> list[Piece]:
        start, end = self._range.start, self._range.end
        pieces = []
        for entry in entries:
            key = entry.key
            if key > end.entry or (key == end.entry and not end.batch_index):
                self._is_done = True
                break
            piece = Piece(entry)
            if key == end.entry or (key == start.entry and start.batch_index):
                piece = self._part(entry)
                self._is_done = self._is_done or key == end.entry
            if piece.last is None or piece.first < piece.last:
                pieces.append(piece)
        self._is_seen()
        return pieces

    def _part(self, entry: EntryBatch) -> Piece:
        start, end = self._range.start, self._range.end
        first = start.batch_index if entry.key == start.entry else 0
        last = min(end.batch_index, entry.message_count) if entry.key == end.entry else entry.message_count
        return Piece(entry, first, last)

    def _is_seen(self) -> bool:
        """Whether the last entry below the end came: the end need not come then."""
        assert self._stream is not None
        seen, end = self._stream.last_seen, self._range.end
        if seen is not None and not end.batch_index and (seen[0], seen[1] + 1) >= end.entry:
            self._is_done = self._is_done or not self._stream.has_arrived()
        return self._is_done

    async def _is_nothing_left(self) -> bool:
        stream = self._stream
        assert stream is not None
        last, _ = await stream.last_message_id()
        if stream.has_arrived():
            return False
        seen = stream.last_seen
        at = max(stream.next_entry, (seen[0], seen[1] + 1)) if seen is not None else stream.next_entry
        is_left = (last.ledger_id(), last.entry_id()) >= at and last.entry_id() >= 0
        if not is_left and stream.first_seen is None:
            await self._check_gone()
        return not is_left

    # ---- what may be missing

    async def _check_start(self) -> None:
        assert self._stream is not None
        first = self._stream.first_seen
        if self._is_start_known or first is None:
            return
        if first[0] != self._range.start.ledger_id:
            await self._check_gone()
        self._is_start_known = True

    async def _check_gone(self) -> None:
        """The ledger of the start is not what comes first: was it read to its end, or has it gone?"""
        start = self._range.start
        if start == BEGINNING:
            return
        first = await first_position(self._client, self._range.topic, self._config.name)
        if first is not None and first.ledger_id < 0:
            if await is_held_compacted(self._client, self._range.topic, self._range.end, self._config):
                return
            # A cursor that stands in it, so before all, is as new as the topic: it is no proof.
            self._lost(
                f"{self._range.topic} was deleted before {self._range.end} was reached: it is there again, empty"
            )
        if self._is_start_known:
            return
        self._is_start_known = True
        if first is None or first.ledger_id <= start.ledger_id:
            return
        if await is_held_compacted(self._client, self._range.topic, first, self._config):
            return
        self._lost(lost_text(self._range.topic, start, first))

    async def _check_passed(self, key: tuple[int, int]) -> None:
        """Entries of closed ledgers that did not come though ``key`` did: are they none for readers, or gone?"""
        last = self._last
        for ledger_id, entries in self._lengths:
            begin = last[1] + 1 if ledger_id == last[0] else 0
            end = entries if ledger_id < key[0] else min(entries, key[1])
            if last[0] <= ledger_id <= key[0] and begin < end:
                break
        else:
            return
        first = await first_position(self._client, self._range.topic, self._config.name)
        if first is not None and first.ledger_id > ledger_id:
            self._lost(lost_text(self._range.topic, ReadPosition(ledger_id, begin), first))

    def _check_chunks(self) -> None:
        assert self._source is not None
        gone = self._source.chunks_without_beginning
        if gone:
            ledger_id, entry_id = gone[0]
            gone.clear()
            text = f"{self._range.topic}: the chunked message of {ledger_id}:{entry_id} has no beginning any more"
            if self._config.is_first_read:
                _log.warning("%s: that went before the topic was read for the first time", text)
            else:
                self._lost(text)

    def _lost(self, text: str) -> None:
        if self._config.fail_on_data_loss:
            raise DataLossError(text)
        _log.warning("%s (failOnDataLoss=false)", text)
