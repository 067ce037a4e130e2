"""Transactions over two topics, one after the other, while brokers come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Final, Self

import geminga.client as gc

TIMEOUT_S: Final = 60.0
#: For what is on its way when it is told to stop.
END_S: Final = 180.0


class TransactedLoad:
    """Sends each number to all topics in a transaction of its own; every third is aborted."""

    def __init__(self, url: str, topics: Sequence[str]) -> None:
        self._url = url
        self._topics = topics
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        #: Whether they were committed nobody was told.
        self.unknown: set[int] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(END_S)

    async def _main(self) -> None:
        async with gc.connect(self._url, operation_timeout_ms=20_000) as client:
            producers = [await client.create_producer(topic, send_timeout_millis=0) for topic in self._topics]
            number = 0
            while not await asyncio.to_thread(self._is_over.wait, 0.1):
                await self._one(client, producers, number)
                number += 1

    async def _one(self, client: gc.Client, producers: Sequence[gc.Producer[bytes]], number: int) -> None:
        is_ending = False
        try:
            async with asyncio.timeout(TIMEOUT_S):
                txn = await client.transaction(TIMEOUT_S)
                for producer in producers:
                    await producer.send(b"%d" % number, txn=txn)
                is_ending = number % 3 != 0
                await (txn.commit() if is_ending else txn.abort())
        except (gc.PulsarException, TimeoutError):
            (self.unknown if is_ending else self.aborted).add(number)
            return
        (self.committed if is_ending else self.aborted).add(number)

    def check(self, found: Sequence[Sequence[int]]) -> None:
        """What each topic has: all of a committed one, nothing of an aborted one, all or nothing of a doubtful one."""
        first = list(found[0])
        assert all(list(one) == first for one in found), "topics have different transactions"
        assert first == sorted(set(first))
        assert self.committed <= set(first) <= self.committed | self.unknown
        print(f"{len(self.committed)} committed, {len(self.aborted)} aborted, {len(self.unknown)} in doubt")
