"""Batches acknowledged message by message, at brokers that keep that and at brokers that do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from tools.standalone_process import StandaloneProcess

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import stats

pytestmark = pytest.mark.integration

KEY = "acknowledgmentAtBatchIndexLevelEnabled"
OPTIONS = {"consumer_type": gc.ConsumerType.Shared, "initial_position": gc.InitialPosition.Earliest}
MESSAGES = 300


@pytest.fixture(scope="module")
def unwilling(start_judge: Callable[[Mapping[str, str]], StandaloneProcess]) -> StandaloneProcess:
    """A broker that takes whole entries only."""
    return start_judge({KEY: "false"})


def test_broker_ignores_ack_sets_and_takes_what_is_finished(unwilling, topic) -> None:
    """1. All of one batch and a part of the next. 2. A new consumer gets that next batch whole, and nothing else."""

    async def main(client):
        consumer = await client.subscribe(topic, "sub", ack_receipt_enabled=True, **OPTIONS)
        await publish(client, topic, 20)
        await publish(client, topic, 20, first=20)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(40)]
        # A part first, the rest later: the entry goes by itself with its last message.
        await consumer.acknowledge(messages[:7])
        await consumer.acknowledge(messages[7:30])
        await consumer.close()
        again = await client.subscribe(topic, "sub", **OPTIONS)
        assert contents(await drain(again, count=20)) == list(range(20, 40))

    run(unwilling, main)


def test_cumulative_acknowledgment_inside_a_batch_takes_no_more_than_what_is_before_it(unwilling, topic) -> None:
    async def main(client):
        options = {"initial_position": gc.InitialPosition.Earliest}
        consumer = await client.subscribe(topic, "sub", ack_receipt_enabled=True, **options)
        await publish(client, topic, 20)
        await publish(client, topic, 20, first=20)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(40)]
        await consumer.acknowledge_cumulative(messages[29])
        await consumer.close()
        again = await client.subscribe(topic, "sub", **options)
        assert contents(await drain(again, count=20)) == list(range(20, 40))

    run(unwilling, main)


def _backlog(broker, topic: str) -> int:
    backlog = stats(broker.web_service_url, topic)["subscriptions"]["sub"]["msgBacklog"]
    assert isinstance(backlog, int)
    return backlog


def test_a_pool_with_nacks_loses_nothing_and_comes_to_an_end(unwilling, topic) -> None:
    async def main(client):
        options = {**OPTIONS, "negative_ack_redelivery_delay_ms": 100, "receiver_queue_size": 100}
        pool = [await client.subscribe(topic, "sub", **options) for _ in range(3)]
        await publish(client, topic, MESSAGES)
        seen: Counter[int] = Counter()

        async def work(consumer):
            async for message in consumer:
                number = int(message.data()[1:])
                seen[number] += 1
                if number % 5 == 0 and seen[number] == 1:
                    await consumer.negative_acknowledge(message)
                else:
                    await consumer.acknowledge(message)

        workers = [asyncio.ensure_future(work(consumer)) for consumer in pool]
        # Some of it comes twice, but everything is finished at last.
        while len(seen) < MESSAGES or await asyncio.to_thread(_backlog, unwilling, topic):
            await asyncio.wait(workers, timeout=0.1)
        for consumer in pool:
            await consumer.close()
        await asyncio.wait(workers)
        assert sorted(seen) == list(range(MESSAGES))
        again = await client.subscribe(topic, "sub", **OPTIONS)
        assert await drain(again) == []

    run(unwilling, main)
