"""Producers with the names that deduplication goes by: opened for one task, closed with it.

A name belongs to one producer of a topic at a time. While an older attempt of the same task still holds it (its worker
is being killed, hangs, or runs a speculative copy), a newer one waits; the broker asks the older one's connection
whether it is alive, and takes the name from it if it is not.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.client import EntryProducer, ProducerBusy, PulsarException, Timeout
from geminga.client.rules.backoff import Backoff
from geminga.runtime import all_ended, crash_point, get_logger, wait_ms
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink import crash_points
from geminga.spark.sink.producers import open_producer
from geminga.spark.sink.records import EncodedPayload
from geminga.spark.sink_rules.entries import Entry
from geminga.spark.sink_rules.errors import DeduplicationOffError, SinkError
from geminga.spark.sink_rules.sink_options import ProducerSettings, SinkOptions

_log = get_logger(__name__)

#: Producers that one task opens at the same time.
_OPENING_MAX: Final = 32
_FIRST_RETRY_MS: Final = 10
_RETRY_MS_MAX: Final = 500


class NamedProducers:
    """The producers of one task, all with the same name."""

    __slots__ = ("_name", "_open", "_options", "_session")

    def __init__(self, session: ClientSession, options: SinkOptions, name: str) -> None:
        self._session = session
        self._options = options
        self._name = name
        self._open: list[EntryProducer[bytes]] = []

    def open(self, topic: str, settings: ProducerSettings, schema: EncodedPayload | None) -> EntryProducer[bytes]:
        """A producer on a topic without partitions or one partition; raises SinkError if its name stays taken."""
        return self._session.run(lambda: self._opened(topic, settings, schema))

    def open_all(self, topics: list[str], schema: EncodedPayload | None) -> list[EntryProducer[bytes]]:
        """One on each of ``topics``, in order."""

        async def open_some() -> list[EntryProducer[bytes]]:
            producers: list[EntryProducer[bytes]] = []
            for start in range(0, len(topics), _OPENING_MAX):
                some = topics[start : start + _OPENING_MAX]
                producers += await all_ended(self._opened(topic, self._options.producer, schema) for topic in some)
            return producers

        return self._session.run(open_some)

    def send_first(
        self,
        producer: EntryProducer[bytes],
        entry: Entry,
        highest_sequence_id: int,
        settings: ProducerSettings,
        schema: EncodedPayload | None,
    ) -> EntryProducer[bytes]:
        """Send the first entry under a name that the broker does not know, and see that it knows it afterwards.

        Gives the producer to go on with. Raises DeduplicationOffError: the broker forgets what it is told.
        """

        async def send_and_look() -> EntryProducer[bytes]:
            producer.send_encoded(entry)
            crash_point(crash_points.FIRST_SENT)
            await self._flushed(producer)
            topic = producer.topic()
            await self._closed(producer)
            again = await self._opened(topic, settings, schema)
            if again.last_sequence_id() < highest_sequence_id:
                raise DeduplicationOffError(
                    f"guarantee=effectively-once: the broker does not deduplicate {topic}: a replay would be written "
                    "twice. Switch it on for the namespace (pulsar-admin namespaces set-deduplication --enable "
                    "tenant/namespace) or the topic, or use guarantee=at-least-once"
                )
            return again

        return self._session.run(send_and_look)

    def send(self, producer: EntryProducer[bytes], entry: Entry) -> None:
        """Send one entry and wait until it is stored; raises Timeout."""

        async def send() -> None:
            producer.send_encoded(entry)
            crash_point(crash_points.PLAN_SENT)
            await self._flushed(producer)

        self._session.run(send)

    async def _flushed(self, producer: EntryProducer[bytes]) -> None:
        timeout_ms = self._options.producer.send_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                await producer.flush()
        except TimeoutError:
            raise Timeout(f"{producer.topic()}: no receipt within {timeout_ms} ms (sendTimeoutMs)") from None

    def close(self) -> None:
        """Leave all names to the next attempt."""

        async def close() -> None:
            results = await asyncio.gather(*(producer.close() for producer in self._open), return_exceptions=True)
            for result in results:
                if isinstance(result, PulsarException):
                    _log.info("closing a producer named %s: %s", self._name, result)
                elif isinstance(result, BaseException):
                    try:
                        raise result
                    finally:
                        del result, results  # see runtime's value_of

        if self._open and self._session.thread.is_alive:
            self._session.run(close)
        self._open.clear()

    async def _opened(
        self, topic: str, settings: ProducerSettings, schema: EncodedPayload | None
    ) -> EntryProducer[bytes]:
        runtime = self._session.client.runtime
        deadline_ms = runtime.clock.monotonic() * 1000 + self._options.attempt_timeout_ms
        backoff = Backoff(_FIRST_RETRY_MS, _RETRY_MS_MAX)
        is_logged = False
        while True:
            try:
                producer = await open_producer(self._session.client, topic, settings, schema, self._name)
            except ProducerBusy as error:
                now_ms = runtime.clock.monotonic() * 1000
                if now_ms >= deadline_ms:
                    raise SinkError(
                        f"an older attempt of this task still writes to {topic} under the name {self._name} after "
                        f"{self._options.attempt_timeout_ms} ms (option attemptTimeoutMs): {error}"
                    ) from error
                if not is_logged:
                    _log.warning("waiting for an older attempt to leave %s: %s", topic, error)
                    is_logged = True
                await wait_ms(backoff.next_ms(now_ms, runtime.rng.random()))
            else:
                self._open.append(producer)
                return producer

    async def _closed(self, producer: EntryProducer[bytes]) -> None:
        await producer.close()
        self._open.remove(producer)
