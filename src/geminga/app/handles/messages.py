"""Messages of a topic as lines: read by a client, written to a file, published from it again.

Files are as docs/formats/message-lines.md says. What a client reads it may read by its rights alone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from geminga.app.handles.core.filters import Filter
from geminga.app.handles.core.message_lines import (
    Header,
    LineError,
    MessageLine,
    SchemaLine,
    header_line,
    message_line,
    parse_line,
    schema_line,
)
from geminga.client import (
    Client,
    ConsumerCryptoFailureAction,
    MemoryBufferIsFull,
    Message,
    MessageId,
    OutgoingMessage,
    PartitionsRoutingMode,
    Producer,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from geminga.client.producer_rules.router import partition_of_key
from geminga.client.schema import MessageDecoder, MessageEncoder, SchemaInfo, SchemaSource, SchemaType
from geminga.model.errors import ConfigurationError
from geminga.runtime import Raised, attempt_await, spawn

if TYPE_CHECKING:
    from geminga.admin._subscriptions import Subscriptions

#: Messages between two looks at how far an import is.
NOTED_EACH: Final = 10_000
#: Lines without key that an import sends to one partition before the next one has its turn: batches stay full.
KEYLESS_RUN_LINES: Final = 1000
#: A payload that is larger is no part of a batch, and goes in chunks if it is larger than the broker takes.
ALONE_ABOVE_BYTES: Final = 128 * 1024
#: Seconds without a receipt after which an import ends.
STALLED_S: Final = 30.0
#: Lines behind it that are sent without batches, too.
ALONE_LINES: Final = 100
ALL: Final = Filter()
#: Property of what reads, by which the audit log of Geminga's broker names it (``broker.handlers.kept_reads``).
COMMAND: Final = "geminga-command"


class Transfer(NamedTuple):
    """What an export or import did."""

    messages: int
    #: Of the file, which were there, or stored, before.
    resumed: int


# ---- reading


class RawSchema:
    """Bytes as they are; on the way the schemas that they were written with are looked up, each once."""

    def __init__(self, info: SchemaInfo | None = None) -> None:
        """``info``: what a producer says of its bytes."""
        #: By version; None: it can not be had.
        self.schemas: dict[bytes, SchemaInfo | None] = {}
        self.info = info
        self._source: SchemaSource | None = None
        self._topic = ""

    sets_key = False

    async def bind_producer(self, topic: str, source: SchemaSource) -> MessageEncoder[bytes]:
        """Itself."""
        return self

    async def bind_consumer(self, topic: str, source: SchemaSource) -> MessageDecoder[bytes]:
        """Itself."""
        self._topic, self._source = topic, source
        return self

    def encode(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def encode_key(self, value: bytes) -> bytes:
        """Never asked for."""
        return b""

    def is_ready(self, schema_version: bytes) -> bool:
        """Whether it is known."""
        return not schema_version or schema_version in self.schemas

    async def prepare(self, schema_version: bytes) -> None:
        """Look it up."""
        found = await self._source.get_schema(self._topic, schema_version) if self._source is not None else None
        self.schemas[schema_version] = found.info if found is not None else None

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> bytes:
        """As it is."""
        return payload


def id_text(message_id: MessageId) -> str:
    """``ledger:entry``, or ``ledger:entry:index`` in a batch."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}"
    return f"{text}:{message_id.batch_index()}" if message_id.batch_index() >= 0 else text


def id_of(text: str) -> MessageId:
    """``earliest``, ``latest``, or as :func:`id_text`. Raises ConfigurationError."""
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    parts = text.split(":")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigurationError(f"{text!r} is no message id: expected earliest, latest, LEDGER:ENTRY[:INDEX]")
    numbers = [int(part) for part in parts]
    return MessageId(-1, numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else -1)


def line_of(message: Message[Any]) -> MessageLine:
    """A message as a line."""
    key: str | bytes | None = None
    if message.has_key():
        key = message.key_bytes()
        if not message.has_base64_key():
            with suppress(UnicodeDecodeError):
                key = key.decode()
    message_id = message.message_id()
    return MessageLine(
        id_text(message_id),
        None if message.has_null_value() else message.data(),
        key,
        message.ordering_key_bytes(),
        message.properties(),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.schema_version(),
        message_id.partition(),
    )


async def read_lines(
    client: Client,
    topic: str,
    start: MessageId = MessageId.earliest,
    *,
    follow: bool = False,
    schema: RawSchema | None = None,
    command: str = "messages browse",
) -> AsyncGenerator[MessageLine, None]:
    """Messages behind ``start`` of a topic without partitions, or of one partition, up to what was last there now.

    ``follow``: all that come later too. ``schema``: has their schemas by version then. ``command``: told to the broker,
    whose audit log says who reads payloads. Raises ConfigurationError at a message that is encrypted, the client's
    errors.
    """
    reader = await client.create_reader(
        topic,
        start,
        schema=schema or RawSchema(),
        properties={COMMAND: command},
        # Any other action passes over what can not be decrypted: nobody would know that it is missing.
        crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
    )
    try:
        if follow:
            async for message in reader:
                yield _clear_line(topic, message)
            return
        last = await reader.get_last_message_id()
        while await reader.has_message_available():
            message = await reader.read_next()
            # What was published since is the next one's.
            if message.message_id().ledger_id() > last.ledger_id() or (
                message.message_id().ledger_id() == last.ledger_id()
                and message.message_id().entry_id() > last.entry_id()
            ):
                return
            yield _clear_line(topic, message)
    finally:
        await reader.close()


def _clear_line(topic: str, message: Message[Any]) -> MessageLine:
    if message.encryption_context() is not None:
        raise ConfigurationError(
            f"message {id_text(message.message_id())} of {topic} is encrypted: there is no key for it here"
        )
    return line_of(message)


async def unacknowledged_lines(
    client: Client, subscriptions: Subscriptions, topic: str, subscription: str
) -> AsyncIterator[MessageLine]:
    """Messages that a subscription has not acknowledged, of a batch those alone; a topic without partitions, or one.

    ``subscriptions`` of an admin client says which; what is delayed, or held by a consumer, is one of them. Raises
    AdminError, what :func:`read_lines` raises.
    """
    start: str | None = None
    lines: AsyncGenerator[MessageLine, None] | None = None
    line: MessageLine | None = None
    try:
        while True:
            page = await subscriptions.analyze_backlog(topic, subscription, positions=True, start=start)
            if "positions" not in page:
                raise ConfigurationError("the broker does not tell where a backlog is: only Geminga's does")
            wanted = {each["id"]: each.get("indexes") for each in page["positions"]}
            if wanted and lines is None:
                first = id_of(next(iter(wanted)))
                # One reader for all pages: chunks of a message may be in several.
                lines = read_lines(client, topic, MessageId(-1, first.ledger_id(), first.entry_id() - 1))
                line = await anext(lines, None)
            last = _entry_of(next(reversed(wanted))) if wanted else (-1, -1)
            while lines is not None and line is not None and _entry_of(line.id) <= last:
                ledger, entry, *index = line.id.split(":")
                indexes = wanted.get(f"{ledger}:{entry}", ())
                if indexes is None or (index and int(index[0]) in indexes):
                    yield line
                line = await anext(lines, None)
            start = page.get("nextMessageId")
            if start is None:
                return
    finally:
        if lines is not None:
            await lines.aclose()


def _entry_of(text: str) -> tuple[int, int]:
    """Ledger and entry of what :func:`id_text` made."""
    ledger, entry, *_ = text.split(":")
    return int(ledger), int(entry)


# ---- export


async def export_messages(
    client: Client, topic: str, path: str, *, wanted: Filter = ALL, is_resumed: bool = False
) -> Transfer:
    """Write what a topic has now to a file, partition after partition.

    ``is_resumed``: go on behind the last whole line that is there; else the file must not be there. Raises LineError,
    OSError, ConfigurationError, the client's errors.
    """
    place = _Written() if not is_resumed else _written(path)
    if is_resumed and place.topic not in ("", topic):
        raise ConfigurationError(f"{path} has messages of {place.topic}, and not of {topic}")
    count = 0
    with _opened(path, place.end, is_new=not is_resumed) as file:
        if not place.end:
            file.write(f"{header_line(Header(topic))}\n".encode())
        told = set(place.versions)
        for number, partition in enumerate(await client.get_topic_partitions(topic)):
            if number < place.partition:
                continue
            start = id_of(place.id) if place.id and number == max(0, place.partition) else MessageId.earliest
            schema = RawSchema()
            async for line in read_lines(client, partition, start, schema=schema, command="messages export"):
                if not wanted.wants(line):
                    continue
                if line.schema_version and line.schema_version not in told:
                    told.add(line.schema_version)
                    info = schema.schemas.get(line.schema_version)
                    if info is not None:
                        file.write(f"{schema_line(_schema_line(line.schema_version, info))}\n".encode())
                file.write(f"{message_line(line._replace(partition=_number_of(partition)))}\n".encode())
                count += 1
        file.flush()
        os.fsync(file.fileno())
    return Transfer(count, place.messages)


class _Written(NamedTuple):
    """What a file has."""

    topic: str = ""
    end: int = 0
    messages: int = 0
    #: Of the last message.
    id: str = ""
    partition: int = -1
    versions: frozenset[bytes] = frozenset()


def _opened(path: str, end: int, *, is_new: bool) -> IO[bytes]:
    """To go on behind ``end``. Raises FileExistsError for a new one that is there."""
    file = open(path, "xb" if is_new or not os.path.exists(path) else "r+b")  # noqa: SIM115  (closed by who asks)
    file.seek(end)
    file.truncate()
    return file


def _written(path: str) -> _Written:
    """Up to the last whole line: a kill leaves half of one."""
    found, versions = _Written(), set[bytes]()
    if not os.path.exists(path):
        return found
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                break
            line = parse_line(text, number)
            found = found._replace(end=found.end + len(text))
            if isinstance(line, Header):
                found = found._replace(topic=line.topic)
            elif isinstance(line, SchemaLine):
                versions.add(line.version)
            else:
                found = found._replace(messages=found.messages + 1, id=line.id, partition=line.partition)
    return found._replace(versions=frozenset(versions))


def _schema_line(version: bytes, info: SchemaInfo) -> SchemaLine:
    return SchemaLine(version, info.name, info.type.name, info.schema, dict(info.properties))


def _number_of(topic: str) -> int:
    _, found, number = topic.rpartition("-partition-")
    return int(number) if found and number.isdecimal() else -1


# ---- import


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
            for number, text in enumerate(file, 1):
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
        await publisher.flush()
        progress.end()
    finally:
        try:
            if gaps := await publisher.settle():
                progress.note_gaps(gaps)
        finally:
            await publisher.close()
    return Transfer(count, resumed)


def _to_read(path: str) -> IO[bytes]:
    return open(path, "rb")


class _Progress:
    """A file beside the one that is imported: the topic, the producer's name, and the last line that is stored.

    And, of a partitioned topic, how many partitions the lines are spread over: deduplication is a partition's, so what
    is sent again has to go where it went before, also if the topic has grown since.

    And gaps: lines that were refused while later ones of the same partition were stored. Deduplication takes them for
    stored, so they are sent by a producer of another name.
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
        with open(self._path, encoding="utf-8") as file:
            document = json.load(file)
        if document["topic"] != self._topic:
            raise ConfigurationError(f"{self._path}: that import was to {document['topic']}, not to {self._topic}")
        self.producer_name = document["producer"]
        # None: the topic has none, or nothing was sent yet.
        self._partitions = int(document.get("partitions", 0))
        self._lines = int(document["lines"])
        self.gaps = {int(line) for line in document.get("gaps", ())}
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

    def note_gaps(self, lines: Iterable[int]) -> None:
        """They are not stored, and later ones are."""
        self.gaps |= set(lines)
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
        #: Receipts and refusals.
        self._heard = 0
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
            raise self._error
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
        partition = self._partition  # by the router

    async def send_again(self, line: MessageLine, number: int) -> None:
        """One of the gaps, by itself: stored, and no gap any more."""
        is_large = len(line.payload or b"") > ALONE_ABOVE_BYTES
        producer = await self._create(line.schema_version, f"{self._progress.producer_name}-again", is_alone=is_large)
        try:
            again = _Publisher(self._client, self._topic, self._progress)
            again._hand_over(producer, line, number)
            await again._unless_stalled(producer.flush())
            if again._error is not None:
                raise again._error
        finally:
            await producer.close()
        self._progress.filled(number)

    async def flush(self) -> None:
        """All is stored. Raises what one met."""
        if self._producer is not None:
            await self._unless_stalled(self._producer.flush())
        if self._error is not None:
            raise self._error

    async def settle(self) -> list[int]:
        """Hear of the rest where one was refused: lines that are gaps now."""
        if self._error is None:
            return []
        with suppress(PulsarException):
            await self.flush()
        return [line for place, lines in self._refused.items() for line in lines if line < self._stored.get(place, 0)]

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
        if isinstance(outcome := task.result(), Raised):
            raise outcome.error

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
