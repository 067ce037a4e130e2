"""Messages of a file published to a topic: each once, however often it is cut off, where the topic has deduplication.

Files are as docs/formats/message-lines.md says.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import IO, Any, Final

from geminga.app.handles.core.message_lines import Header, LineError, MessageLine, SchemaLine, parse_line
from geminga.app.handles.messages import ALONE_ABOVE_BYTES, RawSchema, Transfer, lines_of
from geminga.client import (
    Client,
    MemoryBufferIsFull,
    MessageId,
    OutgoingMessage,
    PartitionsRoutingMode,
    Producer,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from geminga.client.producer_rules.router import partition_of_key
from geminga.client.schema import SchemaInfo, SchemaType
from geminga.model.errors import ConfigurationError
from geminga.runtime import Raised, again, attempt_await, spawn
from geminga.runtime.local_file import sync_folder_of

#: Messages between two looks at how far it is.
NOTED_EACH: Final = 10_000
#: Lines without key that are sent to one partition before the next one has its turn: batches stay full.
KEYLESS_RUN_LINES: Final = 1000
#: Seconds without a receipt after which an import ends.
STALLED_S: Final = 30.0
#: Lines behind one that is larger than :data:`ALONE_ABOVE_BYTES` that are sent without batches, too.
ALONE_LINES: Final = 100


async def import_messages(
    client: Client, topic: str, path: str, *, is_resumed: bool = False, told: Callable[[int], None] | None = None
) -> Transfer:
    """Publish the messages of a file in its order, with their schemas; publish times are new.

    How far it is stands in ``PATH.progress`` while it is under way. ``is_resumed``: go on there; of what was published
    since it was noted, deduplication of the topic stores nothing twice, and without it some may be. What was refused
    while later ones were stored is published then. ``told`` hears how many there are. Raises LineError, OSError,
    ConfigurationError, the client's errors: Timeout after :data:`STALLED_S` without a receipt.
    """
    progress = _Progress(path, topic)
    before = progress.begin(is_resumed=is_resumed)
    publisher = _Publisher(client, topic, progress)
    count = number = resumed = 0
    try:
        with _to_read(path) as file:
            for number, text in enumerate(lines_of(file), 1):
                line = parse_line(text, number)
                if number == 1 and not isinstance(line, Header):
                    raise LineError(f"{path}: the first line is no header")
                if isinstance(line, SchemaLine):
                    publisher.learn(line)
                elif isinstance(line, MessageLine) and number <= before:
                    resumed += 1
                elif isinstance(line, MessageLine):
                    if number in progress.gaps:
                        await publisher.send_again(line, number)
                    else:
                        await publisher.send(line, number)
                    count += 1
                    if count % NOTED_EACH == 0:
                        await publisher.flush()
                        progress.note(number)
                        if told is not None:
                            told(count)
        if not number:
            raise LineError(f"{path} is empty: expected a header, which also an export of no messages has")
        await publisher.flush()
        progress.end()
    finally:
        try:
            await publisher.settle()
        finally:
            await publisher.close()
    return Transfer(count, resumed)


def _to_read(path: str) -> IO[bytes]:
    return open(path, "rb")


class _Progress:
    """A file beside the one that is imported: the topic, the producer's name, and the last line that is stored.

    And, of a partitioned topic, how many partitions the lines are spread over: deduplication is a partition's, so what
    is sent again has to go where it went before, also if the topic has grown since.

    And gaps: lines that were refused while later ones of the same partition were stored, or may have been.
    Deduplication takes them for stored, so they are sent by a producer of another name.
    """

    def __init__(self, path: str, topic: str) -> None:
        self._path = f"{path}.progress"
        self._topic = topic
        self._lines = self._partitions = 0
        self.gaps: set[int] = set()
        self.producer_name = ""

    def begin(self, *, is_resumed: bool) -> int:
        """Lines that are stored. Raises ConfigurationError where an import is under way, or another one."""
        if not os.path.exists(self._path):
            self.producer_name = f"import-{os.urandom(8).hex()}"
            return 0
        if not is_resumed:
            raise ConfigurationError(f"{self._path} is there: an import did not end; --resume goes on with it")
        try:
            with open(self._path, encoding="utf-8") as file:
                document = json.load(file)
            if document["topic"] != self._topic:
                raise ConfigurationError(f"{self._path}: that import was to {document['topic']}, not to {self._topic}")
            self.producer_name = str(document["producer"])
            # None: the topic has none, or nothing was sent yet.
            self._partitions = int(document.get("partitions", 0))
            self._lines = int(document["lines"])
            self.gaps = {int(line) for line in document.get("gaps", ())}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigurationError(f"{self._path} is damaged: how far the import was is not known") from error
        return self._lines

    def spread_over(self, partitions: int) -> int:
        """The partitions that lines go to, where the topic has so many now: those of the first line."""
        # Fewer: it was deleted and made anew, and has nothing of what was sent.
        if not 0 < self._partitions <= partitions:
            self._partitions = partitions
            self.note(self._lines)
        return self._partitions

    def begun(self) -> None:
        """Messages are sent from now on."""
        if not os.path.exists(self._path):
            self.note(0)

    def note(self, lines: int) -> None:
        """So many lines are stored."""
        self._lines = lines
        document: dict[str, object] = {"topic": self._topic, "producer": self.producer_name, "lines": lines}
        if self._partitions:
            document["partitions"] = self._partitions
        if self.gaps:
            document["gaps"] = sorted(self.gaps)
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._path}.new", self._path)
        # Else it is forgotten with the power, and whoever begins anew under another name publishes all of it again.
        sync_folder_of(self._path)

    def note_gaps(self, gaps: Iterable[int], *, refused: Iterable[int]) -> None:
        """Of those that were refused the others are none: nothing later is stored."""
        before = set(self.gaps)
        self.gaps = (before - set(refused)) | set(gaps)
        if self.gaps != before:
            self.note(self._lines)

    def filled(self, line: int) -> None:
        """It is stored now."""
        self.gaps.discard(line)
        self.note(self._lines)

    def end(self) -> None:
        """All is stored."""
        with suppress(FileNotFoundError):  # nothing was sent
            os.unlink(self._path)


class _Publisher:
    """Producers of one name, one at a time: a new one where the schema changes, and for what goes in chunks.

    A producer has batches or chunks: the one with chunks stays for a while, where there is one large message there may
    be more.
    """

    def __init__(self, client: Client, topic: str, progress: _Progress) -> None:
        self._client = client
        self._topic = topic
        self._progress = progress
        self._schemas: dict[bytes, SchemaInfo] = {}
        self._producer: Producer[bytes] | None = None
        self._version = b""
        #: Lines that are still sent one by one; 0: there are batches.
        self._alone = 0
        #: Messages handed over; receipts and refusals.
        self._sent = self._heard = 0
        #: What was refused is noted in the next turn of the loop.
        self._is_noting = False
        self._error: PulsarException | None = None
        #: By partition (-1: the topic has none): lines that were refused, and the last one that is stored.
        self._refused: dict[int, list[int]] = {}
        self._stored: dict[int, int] = {}
        self._partition = -1

    def learn(self, line: SchemaLine) -> None:
        """Messages of that version follow."""
        kind = SchemaType.__members__.get(line.type)
        if kind is None:
            raise LineError(f"{line.type} is no type of schemas")
        self._schemas[line.version] = SchemaInfo(line.name, kind, line.definition, dict(line.properties))

    async def send(self, line: MessageLine, number: int) -> None:
        """Hand it over; its sequence id is its line, so that a broker knows what it has. Raises what an earlier one
        met."""
        if self._error is not None:
            raise again(self._error)
        was_alone, is_large = self._alone > 0, len(line.payload or b"") > ALONE_ABOVE_BYTES
        self._alone = ALONE_LINES if is_large else max(0, self._alone - 1)
        producer = self._producer
        if producer is None or line.schema_version != self._version or was_alone != (self._alone > 0):
            producer = await self._begin(line.schema_version)
        while True:
            try:
                self._hand_over(producer, line, number)
                return
            except (ProducerQueueIsFull, MemoryBufferIsFull):
                await self._unless_stalled(producer.drain())

    def _hand_over(self, producer: Producer[bytes], line: MessageLine, number: int) -> None:
        partition = -1

        def heard(error: PulsarException | None, _: MessageId | None) -> None:
            self._heard += 1
            if error is None:
                self._stored[partition] = max(number, self._stored.get(partition, 0))
            else:
                self._error = self._error or error
                self._refused.setdefault(partition, []).append(number)
                if not self._is_noting:
                    self._is_noting = True
                    asyncio.get_running_loop().call_soon(self._note_refused)

        self._partition = -1
        producer.send_nowait(
            line.payload,
            heard,
            partition_key=line.key,
            ordering_key=line.ordering_key or None,
            properties=line.properties or None,
            event_timestamp=line.event_time_ms or None,
            sequence_id=number,
        )
        self._sent += 1
        partition = self._partition  # by the router

    def _note_refused(self) -> None:
        """At once: later ones are under way, and after a kill nobody would know."""
        self._is_noting = False
        refused = [line for lines in self._refused.values() for line in lines]
        with suppress(OSError):  # of which who settles hears
            self._progress.note_gaps(refused, refused=())

    async def send_again(self, line: MessageLine, number: int) -> None:
        """One of the gaps, by itself, behind those before it: stored, and no gap any more."""
        await self.flush()
        is_large = len(line.payload or b"") > ALONE_ABOVE_BYTES
        producer = await self._create(line.schema_version, f"{self._progress.producer_name}-again", is_alone=is_large)
        try:
            anew = _Publisher(self._client, self._topic, self._progress)
            anew._hand_over(producer, line, number)
            await anew._unless_stalled(producer.flush())
            if anew._error is not None:
                raise again(anew._error)
        finally:
            await producer.close()
        self._progress.filled(number)

    async def flush(self) -> None:
        """All is stored. Raises what one met."""
        if self._producer is not None:
            await self._unless_stalled(self._producer.flush())
        if self._error is not None:
            raise again(self._error)

    async def settle(self) -> None:
        """Hear of the rest where one was refused, and note which lines are gaps."""
        if self._error is None:
            return
        with suppress(PulsarException):
            await self.flush()
        refused = [line for lines in self._refused.values() for line in lines]
        gaps = refused
        if self._heard == self._sent:  # else a later one may be stored
            gaps = [
                line for place, lines in self._refused.items() for line in lines if line < self._stored.get(place, 0)
            ]
        self._progress.note_gaps(gaps, refused=refused)

    async def _unless_stalled(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Raises Timeout.

        Messages have no time limit of their own: one that is given up while later ones are stored would be a gap.
        """
        task = spawn(attempt_await(waiting), name="import: receipts")
        try:
            heard = -1
            while not task.done() and heard != self._heard:
                heard = self._heard
                await asyncio.wait([task], timeout=STALLED_S)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise Timeout(f"no receipt of {self._topic} for {STALLED_S:.0f} seconds")
        outcome = task.result()
        if isinstance(outcome, Raised):
            raise again(outcome.error)

    async def close(self) -> None:
        """It is no longer needed."""
        if self._producer is not None:
            await self._producer.close()

    async def _begin(self, version: bytes) -> Producer[bytes]:
        if self._producer is not None:
            await self.flush()
            await self._producer.close()
        self._producer = await self._create(version, self._progress.producer_name, is_alone=self._alone > 0)
        # Before the first message of that producer, and not before there is one: what never began leaves no file.
        self._progress.begun()
        self._version = version
        return self._producer

    async def _create(self, version: bytes, name: str, *, is_alone: bool) -> Producer[bytes]:
        return await self._client.create_producer(
            self._topic,
            schema=RawSchema(self._schemas.get(version)),
            producer_name=name,
            message_routing_mode=PartitionsRoutingMode.CustomPartition,
            message_router=self._route,
            batching_enabled=not is_alone,
            chunking_enabled=is_alone,
            send_timeout_millis=0,
        )

    def _route(self, message: OutgoingMessage, partitions: int) -> int:
        """The same of each line whenever it is sent."""
        self._partition = self._place_of(message, partitions)
        return self._partition

    def _place_of(self, message: OutgoingMessage, partitions: int) -> int:
        spread, key, number = self._progress.spread_over(partitions), message.partition_key, message.sequence_id
        if key is None:
            return (number or 0) // KEYLESS_RUN_LINES % spread
        # As clients do by themselves.
        text = key if isinstance(key, str) else base64.b64encode(key).decode()
        return partition_of_key(text, spread, murmur3=False)
