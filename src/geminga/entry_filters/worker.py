"""A process that asks filters: ``python -m geminga.entry_filters.worker DIRECTORY MEMORY_MB``.

A broker starts it, and ends it when a filter takes too long. It reads batches from its standard input, answers on its
standard output (:mod:`.pipe`), and ends with its input. What filters print goes to the standard error, which is the
broker's. It is nice to the broker, has no more memory than it was given, and an alarm of its own, which no broker need
be alive for.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from geminga.entry_filters import EntryFilter, FilteredEntry, FilterTarget, FilterVerdict
from geminga.entry_filters.names import FilterNameError, load
from geminga.entry_filters.pipe import (
    LOADED,
    READY,
    VERDICTS,
    AskedEntry,
    Frames,
    PipeError,
    decode_batch,
    encode_error,
    framed,
)
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import text_of, texts_of

#: Of a batch: metadata of the entries of one read.
BATCH_BYTES_MAX: Final = 64 << 20
#: A batch that takes longer ends the process, whoever started it: far more than any budget.
ALARM_S: Final = 120
#: How much the process gives way to others.
NICE: Final = 10
_READ_BYTES: Final = 1 << 16


class _RaisedError(Exception):
    """A filter raised, or answered what is no verdict."""

    def __init__(self, name: str, entry: int, error: str) -> None:
        super().__init__(error)
        self.name = name
        self.entry = entry


def entry_of(question: AskedEntry, target: FilterTarget) -> FilteredEntry:
    """What filters see of an entry. Raises ValueError for metadata that can not be read."""
    try:
        metadata = pb.MessageMetadata.FromString(question.metadata)
    except DecodeError as error:
        raise ValueError("its metadata can not be read") from error
    return FilteredEntry(
        target=target,
        ledger_id=question.ledger_id,
        entry_id=question.entry_id,
        properties=texts_of(metadata.properties),
        key=text_of(metadata.partition_key) if metadata.HasField("partition_key") else None,
        is_key_base64=metadata.partition_key_b64_encoded,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        publish_time_ms=metadata.publish_time,
        event_time_ms=metadata.event_time,
        deliver_at_ms=metadata.deliver_at_time,
        producer_name=text_of(metadata.producer_name),
        sequence_id=metadata.sequence_id,
        compression=pb.CompressionType.Name(metadata.compression),
        batch_size=max(1, metadata.num_messages_in_batch),
        schema_version=metadata.schema_version if metadata.HasField("schema_version") else None,
        replicated_from=text_of(metadata.replicated_from),
        is_encrypted=bool(metadata.encryption_keys),
    )


class Filters:
    """Those that were asked for so far, by name: each is loaded once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.loaded: dict[str, EntryFilter] = {}

    def answer(self, body: bytes) -> Iterator[bytes]:
        """The frames that answer a batch. Raises PipeError for what is none."""
        batch = decode_batch(body)
        try:
            chain = [(name, self._find(name)) for name in batch.filters]
            yield framed(LOADED)
            verdicts = bytes(
                _judge(chain, index, question, batch.target) for index, question in enumerate(batch.entries)
            )
        except _RaisedError as error:
            yield encode_error(error.name, error.entry, str(error))
        else:
            yield framed(VERDICTS + verdicts)

    def _find(self, name: str) -> EntryFilter:
        found = self.loaded.get(name)
        if found is None:
            try:
                found = self.loaded[name] = load(name, self._directory)
            except FilterNameError as error:
                raise _RaisedError(name, -1, str(error)) from error
        return found


def _judge(chain: Sequence[tuple[str, EntryFilter]], index: int, question: AskedEntry, target: FilterTarget) -> int:
    """What the first filter says that does not accept."""
    try:
        entry = entry_of(question, target)
    except ValueError as error:
        raise _RaisedError("entry", index, str(error)) from error
    for name, judge in chain:
        try:
            verdict = judge(entry)
        except BaseException as error:  # code of others: whatever it raises is told
            raise _RaisedError(name, index, f"{type(error).__name__}: {error}") from error
        if not isinstance(verdict, FilterVerdict):
            raise _RaisedError(name, index, f"it answered {verdict!r:.100}, not ACCEPT, REJECT or RESCHEDULE")
        if verdict is not FilterVerdict.ACCEPT:
            return int(verdict.value)
    return int(FilterVerdict.ACCEPT.value)


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def serve(directory: str, source: int, sink: int) -> None:
    """FilterAnswer batches from the pipe ``source`` on ``sink`` until it ends. Raises PipeError, OSError."""
    filters, frames = Filters(directory), Frames(BATCH_BYTES_MAX)
    _write(sink, framed(READY))
    while data := os.read(source, _READ_BYTES):
        for body in frames.feed(data):
            signal.alarm(ALARM_S)
            for answer in filters.answer(body):
                _write(sink, answer)
            signal.alarm(0)


def main(arguments: Sequence[str]) -> int:
    """The process; its exit code."""
    if len(arguments) != 2 or not arguments[1].isdecimal():
        print("usage: python -m geminga.entry_filters.worker DIRECTORY MEMORY_MB", file=sys.stderr)
        return 2
    directory, memory_mb = arguments[0], int(arguments[1])
    # Filters get neither pipe: what they print must not look like an answer.
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    os.nice(NICE)
    if memory_mb:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    try:
        serve(directory, source, sink)
    except PipeError as error:
        print(f"entry filters: {error}", file=sys.stderr)
        return 1
    except OSError:
        return 1  # the broker is gone
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
