"""Dead letters, sent back to where they came from, each once where the cluster has transactions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from geminga.app.handles.core.letters import way_back
from geminga.app.handles.messages import ALONE_ABOVE_BYTES, COMMAND, RawSchema
from geminga.client import (
    AuthorizationError,
    Client,
    Consumer,
    ConsumerCryptoFailureAction,
    IncompatibleSchema,
    InitialPosition,
    InvalidTopicName,
    MemoryBufferIsFull,
    Message,
    NotAllowedError,
    Producer,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    ProducerQueueIsFull,
    Timeout,
    TopicNotFound,
    TopicTerminated,
    Transaction,
)
from geminga.model import TopicName

#: The subscription of the letters; what it acknowledged was sent back.
SUBSCRIPTION: Final = "geminga-redrive"
#: Letters of one transaction.
TOGETHER: Final = 100
#: Seconds after which the broker takes the transaction of a run that was killed for lost.
TIMEOUT_S: Final = 10.0
#: Milliseconds without a letter until a run ends: those of a killed run come again when its transaction has timed out.
QUIET_MS: Final = 12_000
#: Milliseconds to wait for one more of those that go together.
MORE_MS: Final = 50
#: Producers that are kept between two transactions, and topics known to take nothing: it is letters that name them.
PRODUCERS_MAX: Final = 100
#: What a topic says that takes no letters now: those to others need not wait for it.
_CLOSED: Final = (
    AuthorizationError,
    IncompatibleSchema,
    InvalidTopicName,
    NotAllowedError,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    TopicNotFound,
    TopicTerminated,
)


class Redriven(NamedTuple):
    """What a run did."""

    sent: int
    #: Sent to ``LETTERS-refused``: they name no origin that is allowed.
    refused: int
    #: Left where they are, unacknowledged: they are encrypted, and nobody here has the keys (each chunk counts).
    encrypted: int = 0
    #: Left where they are, unacknowledged: the topics that they go to do not take them.
    held: int = 0
    #: What the first of those topics said; empty: nothing was held.
    why: str = ""


async def has_transactions(client: Client) -> bool:
    """Whether the cluster has them."""
    try:
        txn = await client.transaction(TIMEOUT_S)
    except NotAllowedError:
        return False
    await txn.abort()
    return True


async def redrive(
    client: Client, letters: str, *, allowed: str = "", is_exact: bool = True, quiet_ms: int = QUIET_MS, most: int = 0
) -> Redriven:
    """Send the letters of a topic back, ``most`` of them (0: all); ends when none came for ``quiet_ms``.

    ``allowed``: the beginning of full names of topics that they may go to; empty: those of the letters' namespace.
    ``is_exact``: what is sent and acknowledged counts together, in transactions; else a letter may be sent back twice.
    One run at a time: the subscription is exclusive. Raises the client's errors, InvalidTopicNameError.
    """
    name = TopicName.parse(letters)
    schema = RawSchema()
    consumer = await client.subscribe(
        str(name),
        SUBSCRIPTION,
        schema=schema,
        initial_position=InitialPosition.Earliest,
        properties={COMMAND: "dead-letters redrive"},
        # Else nobody would hear of those that are encrypted.
        crypto_failure_action=ConsumerCryptoFailureAction.CONSUME,
    )
    run = _Run(client, consumer, name, allowed or f"{name.domain}://{name.namespace}/", schema)
    try:
        while arrived := await _some(consumer, quiet_ms, run.room(most)):
            found = await run.sendable(run.readable(arrived))
            if not found:
                continue
            if is_exact:
                async with client.transaction(TIMEOUT_S) as txn:
                    await run.send_back(found, txn)
            else:
                await run.send_back(found, None)
            run.count(found)
            await run.forget()
        return Redriven(run.sent, run.refused, run.encrypted, run.held, run.why)
    finally:
        await run.close()


async def _some(consumer: Consumer[bytes], quiet_ms: int, most: int) -> list[Message[bytes]]:
    """Letters that go together, ``most`` of them; none: there are none."""
    found: list[Message[bytes]] = []
    with suppress(Timeout):
        while len(found) < most:
            found.append(await consumer.receive(MORE_MS if found else quiet_ms))
    return found


class _Run:
    """Producers by topic, schema version, and whether they have chunks (or batches: never both)."""

    def __init__(
        self, client: Client, consumer: Consumer[bytes], letters: TopicName, allowed: str, schema: RawSchema
    ) -> None:
        self.sent = self.refused = self.encrypted = self.held = 0
        self.why = ""
        self._client = client
        self._consumer = consumer
        self._letters = letters
        self._allowed = allowed
        self._schema = schema
        #: Those used last at the end.
        self._producers: dict[tuple[str, bytes, bool], Producer[bytes]] = {}
        #: Topics and schema versions for which there is none.
        self._closed: set[tuple[str, bytes, bool]] = set()

    def readable(self, arrived: list[Message[bytes]]) -> list[Message[bytes]]:
        """Those that can be sent back; the others are counted."""
        found: list[Message[bytes]] = []
        for message in arrived:
            encryption = message.encryption_context()
            if encryption is None:
                found.append(message)
            else:
                self.encrypted += max(encryption.batch_size, 1)
        return found

    async def sendable(self, readable: list[Message[bytes]]) -> list[Message[bytes]]:
        """Those whose topics take them; the others are counted. Raises what concerns not one topic alone."""
        found: list[Message[bytes]] = []
        for message in readable:
            place = self._place(message)
            if place not in self._closed:
                try:
                    await self._producer(place)
                except _CLOSED as error:
                    self.why = self.why or f"{place[0]}: {str(error) or type(error).__name__}"
                    if len(self._closed) >= PRODUCERS_MAX:
                        self._closed.clear()  # they are asked once more
                    self._closed.add(place)
                else:
                    found.append(message)
                    continue
            self.held += 1
        return found

    async def forget(self) -> None:
        """Producers above the limit, which have nothing under way."""
        while len(self._producers) > PRODUCERS_MAX:
            await self._producers.pop(next(iter(self._producers))).close()

    def _place(self, message: Message[bytes]) -> tuple[str, bytes, bool]:
        """Topic, schema version, and whether it goes in chunks."""
        topic = way_back(message.properties(), self._letters, self._allowed).topic
        size = 0 if message.has_null_value() else len(message.data())
        return topic, message.schema_version(), size > ALONE_ABOVE_BYTES

    async def send_back(self, found: list[Message[bytes]], txn: Transaction | None) -> None:
        """All of them stored, and acknowledged."""
        used: dict[str, Producer[bytes]] = {}
        for message in found:
            way = way_back(message.properties(), self._letters, self._allowed)
            payload = None if message.has_null_value() else message.data()
            producer = await self._producer(self._place(message))
            before = used.get(way.topic)
            if before is not None and before is not producer:
                await before.flush()  # of a topic they stay in their order
            used[way.topic] = producer
            fields: dict[str, Any] = {} if txn is None else {"txn": txn}
            while True:
                try:
                    producer.send_nowait(
                        payload,
                        partition_key=_key(message),
                        ordering_key=message.ordering_key_bytes() or None,
                        properties=way.properties or None,
                        event_timestamp=message.event_timestamp() or None,
                        **fields,
                    )
                    break
                except (ProducerQueueIsFull, MemoryBufferIsFull):
                    await producer.drain()
        for producer in used.values():
            await producer.flush()
        if txn is None:
            await self._consumer.acknowledge(found)
        else:
            await self._consumer.acknowledge(found, txn=txn)

    def room(self, most: int) -> int:
        """Letters that may go together now; ``most``: of all of the run, 0: no limit."""
        return min(TOGETHER, most - self.sent - self.refused) if most else TOGETHER

    def count(self, found: list[Message[bytes]]) -> None:
        """They are sent back for good."""
        refused = sum(way_back(each.properties(), self._letters, self._allowed).is_refused for each in found)
        self.refused += refused
        self.sent += len(found) - refused

    async def close(self) -> None:
        """No more."""
        for producer in self._producers.values():
            await producer.close()
        await self._consumer.close()

    async def _producer(self, place: tuple[str, bytes, bool]) -> Producer[bytes]:
        producer = self._producers.pop(place, None)
        if producer is None:
            topic, version, is_large = place
            info = self._schema.schemas.get(version) if version else None
            producer = await self._client.create_producer(
                topic, schema=RawSchema(info), batching_enabled=not is_large, chunking_enabled=is_large
            )
        self._producers[place] = producer
        return producer


def _key(message: Message[Any]) -> str | bytes | None:
    if not message.has_key():
        return None
    return message.key_bytes() if message.has_base64_key() else message.partition_key()
