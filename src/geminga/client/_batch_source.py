"""``BatchSource``: what makes :class:`EntryBatch` of the frames of an entry stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from geminga.client._api.errors import CryptoError, PulsarException, ReadError
from geminga.client._consuming.entries import ChunkRead, Decryptor, EntryReader
from geminga.client._entry_stream import EntryKey, EntryStream
from geminga.client._messages.consumer_options import ConsumerCryptoFailureAction
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client.consumer_rules.chunk_assembly import ChunkAssembly, ChunkBounds
from geminga.client.consumer_rules.discards import Discard
from geminga.client.consumer_rules.look_back import start_before
from geminga.runtime import get_logger
from geminga.wire.pulsar.frame import Frame

_log = get_logger(__name__)

_NOT_FOUND: Final = (-1, -1)
#: Chunked messages under way at once; the oldest gives way, and is looked back for if more of it comes.
CHUNKED_PENDING_MAX: Final = 100
#: ... and bytes of their chunks, also of one message alone, and of what it inflates to.
CHUNKED_BYTES_MAX: Final = 1 << 30


class BatchSource:
    """Makes :class:`EntryBatch` of frames: checked, decrypted, put together, decompressed."""

    def __init__(
        self,
        stream: EntryStream[EntryBatch],
        decryptor: Decryptor | None = None,
        *,
        are_laid_out: bool = True,
        chunked_bytes_max: int = CHUNKED_BYTES_MAX,
    ) -> None:
        """``decryptor`` None: an encrypted entry ends the stream.

        ``are_laid_out`` False: batches come as :meth:`EntryBatch.lay_out` finds them, and one that is none, too.
        ``chunked_bytes_max``: see :data:`CHUNKED_BYTES_MAX`.
        """
        self._chunked_bytes_max = chunked_bytes_max
        self._stream = stream
        self._damaged = _NOT_FOUND
        self._reader = EntryReader(
            str(stream.topic),
            ChunkAssembly(CHUNKED_PENDING_MAX, 0, ChunkBounds(chunked_bytes_max, chunked_bytes_max)),
            decryptor=decryptor,
            crypto_failure_action=ConsumerCryptoFailureAction.FAIL,
            now_ms=lambda: 0.0,
            on_discard=self._on_discard,
            on_chunk=self._on_chunk,
            is_laid_out=are_laid_out,
        )
        self._has_decryptor = decryptor is not None
        #: Chunks whose message has no beginning in the topic any more; whoever reads them may clear it.
        self.chunks_without_beginning: list[EntryKey] = []
        #: Something is wrong with an entry: what lies behind it must not come before it.
        self._is_stopped = False
        #: Permits of the entry that was discarded last.
        self._discarded = 1

    def connected(self, message_bytes_max: int) -> None:
        """Everything comes again."""
        self._reader.chunks.clear()
        self._reader.message_bytes_max = message_bytes_max
        self._is_stopped = False

    def close(self) -> None:
        """Nothing is read any more."""
        self._reader.close()

    def read(self, frames: Sequence[Frame]) -> Iterable[EntryBatch]:
        """Entries up to the first that can not be read."""
        for frame in frames:
            if self._is_stopped:
                return
            entries = self._reader.read((frame,))
            if self._is_stopped:
                return
            for entry in entries:
                self._stream.seen(entry.key)
            if not entries:
                self._stream.window.arrived(self._discarded, len(frame[1]))
                self._stream.window.taken(self._discarded, len(frame[1]))
            for entry in entries:
                yield entry

    def _on_discard(self, key: EntryKey, why: Discard, permits: int) -> None:
        stream = self._stream
        self._discarded = max(1, permits)
        if why is Discard.CHUNK:
            stream.seen(key)
        if why in (Discard.CHUNK, Discard.OLD_EPOCH) or key < stream.next_entry:
            return
        self._is_stopped = True
        where = f"{stream.topic}: entry {key[0]}:{key[1]}"
        if why is Discard.CHECKSUM and key != self._damaged:
            self._damaged = key
            stream.read_again(ReadError(f"{where} does not fit its checksum"))
        elif why is Discard.DECRYPTION:
            missing = "no key that was given decrypts it" if self._has_decryptor else "no key was given"
            stream.fail(CryptoError(f"{where} is encrypted, and {missing}"))
        elif why is Discard.TOO_LARGE:
            stream.fail(
                ReadError(
                    f"{where} can not be read: it is a piece of a message of more than {self._chunked_bytes_max} bytes"
                )
            )
        else:
            stream.fail(ReadError(f"{where} can not be read: {why.name.lower()}"))

    def _on_chunk(self, chunk: ChunkRead) -> None:
        key = chunk.key
        if key not in (*chunk.discarded[-1:], *chunk.evicted[-1:]) or key < self._stream.next_entry:
            return
        start = start_before(key, self._stream.started_at)
        if start is None and key in chunk.evicted:
            # Its beginning is there, and gave way again: to look back for it once more would never end.
            self._is_stopped = True
            where = f"{self._stream.topic}: entry {key[0]}:{key[1]}"
            self._stream.fail(
                ReadError(
                    f"{where} can not be read: it is a piece of a message that gave way to others, as more than "
                    f"{CHUNKED_PENDING_MAX} of them or {self._chunked_bytes_max} bytes wait for their ends there"
                )
            )
            return
        if start is None:
            self.chunks_without_beginning.append(key)
            _log.warning("%s: entry %d:%d is a chunk without a beginning", self._stream.topic, *key)
            return
        self._is_stopped = True
        self._stream.start_before(start)


async def open_batches(
    stream: EntryStream[EntryBatch], decryptor: Decryptor | None = None, *, are_laid_out: bool = True
) -> BatchSource:
    """Open a stream of :class:`EntryBatch`; raises what subscribing raises, and then the stream is closed."""
    source = BatchSource(stream, decryptor, are_laid_out=are_laid_out)
    try:
        await stream.open(source)
    except (PulsarException, asyncio.CancelledError):
        await stream.close()
        raise
    return source
