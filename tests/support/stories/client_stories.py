"""What tests of our client do again and again: run a story on a loop of its own, publish numbers, take what comes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

import geminga.client as gc
from support.worlds.partitions import stats

T = TypeVar("T")
#: A message that must come does so within this time; also while a broker of Apache's starts again.
RECEIVE_MS = 10_000
#: Keys of :func:`publish`.
KEYS = 5


class Judge(Protocol):
    """What a test knows of the broker, whichever it is."""

    @property
    def service_url(self) -> str: ...

    @property
    def web_service_url(self) -> str: ...


def run(broker: Judge, main: Callable[[gc.Client], Awaitable[T]], limit_s: float = 60, **options: Any) -> T:
    """``main(client)`` on a loop of its own, with a time limit; a failure tells what client and broker knew then."""

    async def with_client() -> T:
        started_s = time.monotonic()
        async with asyncio.timeout(limit_s), gc.connect(broker.service_url, **options) as client:
            try:
                return await main(client)
            except BaseException as error:
                error.add_note(f"after {time.monotonic() - started_s:.1f} s, load {os.getloadavg()}")
                for note in _state(broker, client):
                    error.add_note(note)
                raise

    return asyncio.run(with_client())


def _state(broker: Judge, client: gc.Client) -> Iterator[str]:
    """Lines about every consumer that is open, and about its topics on the broker."""
    for one in list(client.lifetime.others):
        if isinstance(one, gc.Consumer):
            yield f"client: {one.subscription_name()} connected={one.is_connected()} {one.stats()}"
            for name in one.topics():
                try:
                    yield f"broker: {name} {json.dumps(stats(broker.web_service_url, name.rpartition('/')[2]))}"
                except OSError as error:
                    yield f"broker: {name} {error!r}"


async def publish(
    client: gc.Client, topic: str, count: int, *, first: int = 0, batched: bool = True, **fields: Any
) -> None:
    """Publish ``m0``, ``m1``, ... with keys that go round."""
    producer = await client.create_producer(topic, batching_enabled=batched)
    for number in range(first, first + count):
        producer.send_nowait(b"m%d" % number, partition_key=f"k{number % KEYS}", **fields)
    await producer.flush()
    await producer.close()


async def drain(consumer: gc.Consumer[Any], wait_ms: int = 200, *, count: int = 0) -> list[gc.Message[Any]]:
    """``count`` messages however long they take, and what comes then until nothing does for a while."""
    found = [await consumer.receive(RECEIVE_MS) for _ in range(count)]
    while True:
        try:
            found.append(await consumer.receive(wait_ms))
        except gc.Timeout:
            return found


def contents(messages: Iterable[gc.Message[Any]]) -> list[int]:
    """Their numbers, sorted."""
    return sorted(int(message.data()[1:]) for message in messages)
