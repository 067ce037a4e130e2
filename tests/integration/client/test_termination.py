"""Topics that are terminated under load: what has its receipt is there, nothing more comes, clients hear why."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pulsar
import pytest

import geminga.client as gc
from support.stories.client_stories import Judge, run
from support.worlds.partitions import set_partitions
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

PARTITIONS = 3
#: Receipts that come before the end.
RECEIPTS = 500


def terminate(broker: Judge, topic: str, partitions: int) -> list[tuple[int, int]]:
    """End it; the last position of each part."""
    path = f"persistent/public/default/{topic}/terminate"
    answer = Rest(broker.web_service_url).post(f"{path}/partitions" if partitions else path)
    assert answer.status == 200, answer
    last = answer.json.values() if partitions else [answer.json]
    return [(one["ledgerId"], one["entryId"]) for one in last]


async def read_all(client: gc.Client, topic: str, partitions: int) -> list[tuple[int, tuple[int, int]]]:
    """Number and entry of every message."""
    found = []
    names = [f"{topic}-partition-{i}" for i in range(partitions)] if partitions else [topic]
    for name in names:
        reader = await client.create_reader(name, gc.MessageId.earliest)
        while await reader.has_message_available():
            message = await reader.read_next(10_000)
            id_ = message.message_id()
            found.append((int(message.data()), (id_.ledger_id(), id_.entry_id())))
        await reader.close()
    return found


async def check(
    client: gc.Client, topic: str, partitions: int, receipts: set[int], ends: list[tuple[int, int]]
) -> None:
    found = await read_all(client, topic, partitions)
    numbers = [number for number, _ in found]
    assert len(set(numbers)) == len(numbers)
    assert receipts <= set(numbers)
    assert {entry for _, entry in found} >= {end for end in ends if end[1] >= 0}
    assert max(entry for _, entry in found) == max(end for end in ends if end[1] >= 0)


@pytest.mark.parametrize("partitions", [0, PARTITIONS])
@pytest.mark.parametrize("batched", [True, False])
def test_our_client_hears_of_the_end_and_what_has_its_receipt_is_there(broker, topic, batched, partitions) -> None:
    if partitions:
        set_partitions(broker.web_service_url, topic, partitions)

    async def main(client):
        producer = await client.create_producer(topic, batching_enabled=batched, max_pending_messages=200)
        stored: set[int] = set()
        errors: list[gc.PulsarException] = []

        def heard(number, error, _):
            if error is None:
                stored.add(number)
            else:
                errors.append(error)

        async def send():
            number = 0
            while not errors:
                try:
                    producer.send_nowait(b"%d" % number, partial(heard, number))
                except gc.ProducerQueueIsFull:
                    await producer.drain()
                except gc.TopicTerminated:
                    break
                else:
                    number += 1

        sending = asyncio.ensure_future(send())
        while len(stored) < RECEIPTS:
            await asyncio.wait([sending], timeout=0.01)
        ends = await asyncio.to_thread(terminate, broker, topic, partitions)
        await asyncio.wait_for(sending, 20)
        for _ in range(2 * PARTITIONS):
            with pytest.raises(gc.TopicTerminated):
                await asyncio.wait_for(producer.send(b"-1"), 20)
        assert {type(error) for error in errors} <= {gc.TopicTerminated}
        await check(client, topic, partitions, stored, ends)

    run(broker, main)


@pytest.mark.parametrize("partitions", [0, PARTITIONS])
def test_official_client_hears_of_the_end_and_what_has_its_receipt_is_there(
    standalone, official, topic, partitions
) -> None:
    if partitions:
        set_partitions(standalone.web_service_url, topic, partitions)
    producer = official.create_producer(
        topic, batching_enabled=False, block_if_queue_full=True, send_timeout_millis=9000
    )
    stored: set[int] = set()
    failed: list[pulsar.Result] = []
    is_loaded, is_over = threading.Event(), threading.Event()

    def heard(number, result, _):
        if result == pulsar.Result.Ok:
            stored.add(number)
            if len(stored) >= RECEIPTS:
                is_loaded.set()
        else:
            failed.append(result)
            is_over.set()

    def send() -> None:
        number = 0
        while not is_over.is_set():
            producer.send_async(b"%d" % number, partial(heard, number))
            number += 1

    thread = threading.Thread(target=send)
    thread.start()
    assert is_loaded.wait(20)
    ends = terminate(standalone, topic, partitions)
    assert is_over.wait(20)
    thread.join(20)
    assert not thread.is_alive()
    assert set(failed) == {pulsar.Result.TopicTerminated}
    with pytest.raises(pulsar.PulsarException):
        official.create_producer(f"{topic}-partition-0" if partitions else topic)
    run(standalone, lambda client: check(client, topic, partitions, stored, ends))
