"""Two topics joined into a third, exactly once: what is consumed is acknowledged in the transaction that produces.

::

    geminga standalone --set brokerDeduplicationEnabled=true
    python examples/join_in_transactions.py pulsar://localhost:6650 orders payments paid-orders

A message of the first topic and one of the second with the same key become one message of the third: both payloads,
joined by ``+``. Whatever is killed in between (this program, the broker), each pair is in the third topic once, and no
message is lost: either all of a transaction counts, or none of it, and then its inputs come again. (Deduplication: what
is sent again because its receipt was lost with a connection is not in the transaction twice.)
"""

from __future__ import annotations

import argparse
import asyncio

import geminga.client as gc

#: Pairs of one transaction; fewer if no more input comes.
PAIRS_MAX = 100
#: What input is waited for before a transaction with fewer.
PAUSE_MS = 50
#: After something went wrong.
RETRY_S = 0.5
#: Seconds after which the broker aborts what a killed program left open: so long its inputs come to nobody.
TIMEOUT_S = 10.0

Pair = tuple[gc.Message[bytes], gc.Message[bytes]]


class Join:
    """Messages that wait for their other half, by topic and key."""

    def __init__(self, first: str) -> None:
        self._first = first.rpartition("/")[2]
        self._firsts: dict[str, gc.Message[bytes]] = {}
        self._seconds: dict[str, gc.Message[bytes]] = {}

    def add(self, message: gc.Message[bytes]) -> Pair | None:
        """The pair that ``message`` completes."""
        key = message.partition_key()
        # A partition has a name of its own behind the topic's.
        is_first = message.topic_name().rpartition("/")[2].partition("-partition-")[0] == self._first
        (self._firsts if is_first else self._seconds)[key] = message
        if key in self._firsts and key in self._seconds:
            return self._firsts.pop(key), self._seconds.pop(key)
        return None

    def forget(self) -> None:
        """All of it comes again."""
        self._firsts.clear()
        self._seconds.clear()


async def gather(consumer: gc.Consumer[bytes], join: Join, pairs_max: int) -> list[Pair]:
    """The next pairs, at least one."""
    pairs: list[Pair] = []
    while len(pairs) < pairs_max:
        try:
            message = await consumer.receive(PAUSE_MS if pairs else None)
        except gc.Timeout:
            break
        pair = join.add(message)
        if pair is not None:
            pairs.append(pair)
    return pairs


async def pass_on(
    client: gc.Client, producer: gc.Producer[bytes], consumer: gc.Consumer[bytes], pairs: list[Pair], timeout_s: float
) -> None:
    """Produce the results and acknowledge the inputs: all of it, or none."""
    async with client.transaction(timeout=timeout_s) as txn:
        for first, second in pairs:
            producer.send_nowait(first.data() + b"+" + second.data(), partition_key=first.partition_key(), txn=txn)
        await consumer.acknowledge([message for pair in pairs for message in pair], txn=txn)


async def join_topics(
    url: str,
    first: str,
    second: str,
    result: str,
    results_max: int = 0,
    pairs_max: int = PAIRS_MAX,
    timeout_s: float = TIMEOUT_S,
    consumer_type: gc.ConsumerType = gc.ConsumerType.Shared,
) -> int:
    """Run until ``results_max`` results are there (0: for ever); how many this call made."""
    join, made = Join(first), 0
    async with (
        gc.connect(url) as client,
        client.create_producer(result) as producer,
        client.subscribe(
            [first, second],
            "join",
            consumer_type=consumer_type,
            initial_position=gc.InitialPosition.Earliest,
            batch_index_ack_enabled=True,
        ) as consumer,
    ):
        while not results_max or made < results_max:
            pairs = await gather(consumer, join, pairs_max)
            try:
                await pass_on(client, producer, consumer, pairs, timeout_s)
                made += len(pairs)
            except gc.PulsarException as error:
                # None of it counts, or nobody knows: what does not count comes again.
                print(f"{len(pairs)} pairs again: {type(error).__name__}: {error}", flush=True)
                await asyncio.sleep(RETRY_S)
                join.forget()
                await consumer.redeliver_unacknowledged_messages()
    return made


def main() -> None:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("result")
    parser.add_argument("--results", type=int, default=0, help="stop after so many; 0: never")
    parser.add_argument("--pairs", type=int, default=PAIRS_MAX, help="of one transaction, at most (%(default)s)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="of a transaction, seconds (%(default)s)")
    parser.add_argument("--exclusive", action="store_true", help="one program at a time, instead of a part for each")
    given = parser.parse_args()
    consumer_type = gc.ConsumerType.Exclusive if given.exclusive else gc.ConsumerType.Shared
    limits = (given.results, given.pairs, given.timeout)
    asyncio.run(join_topics(given.url, given.first, given.second, given.result, *limits, consumer_type))


if __name__ == "__main__":
    main()
