"""Dead letters go back to where they came from, each once, whenever the run is cut off."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any, cast

import pytest

from geminga import Standalone
from geminga.admin import blocking as admin
from geminga.app.handles import redrive as redriving
from geminga.app.handles.core.letters import encrypted_told, way_back
from geminga.app.handles.redrive import Redriven, has_transactions, redrive
from geminga.client import Client, CryptoKeyReader, InitialPosition, Timeout, connect
from geminga.model import TopicName
from support.house.signing import pem_files
from support.stories.client_stories import run

LETTERS, ORIGIN = "orders-billing-DLQ", "persistent://public/default/orders"


@pytest.fixture(scope="module")
def broker():
    with Standalone(config={"brokerDeduplicationEnabled": True}) as running:
        yield running


async def _publish(client: Client, letters: str, origin: str, numbers: range) -> None:
    async with await client.create_producer(letters) as producer:
        for number in numbers:
            producer.send_nowait(
                b"%d" % number,
                partition_key=f"k{number}",
                event_timestamp=number + 1,
                properties={"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing", "own": "x"},
            )
        await producer.flush()


async def _received(consumer, wait_ms: int = 100) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while True:
        try:
            message = await consumer.receive(wait_ms)
        except Timeout:
            return found
        assert message.properties() == {"own": "x"}
        assert message.partition_key() == f"k{int(message.data())}"
        assert message.event_timestamp() == int(message.data()) + 1
        found[message.data()] += 1


@pytest.mark.parametrize("is_exact", [True, False])
def test_letters_go_back_as_they_were_and_others_aside(broker, is_exact: bool) -> None:
    async def scenario(client: Client) -> None:
        letters, origin = f"l-{is_exact}", f"{ORIGIN}-{is_exact}"
        consumer = await client.subscribe(origin, "s", initial_position=InitialPosition.Earliest)
        await _publish(client, letters, f"{origin}-partition-3", range(250))
        await _publish(client, letters, "persistent://public/other/orders", range(2))
        assert await has_transactions(client)
        assert await redrive(client, letters, is_exact=is_exact, quiet_ms=100) == Redriven(250, 2)
        assert await _received(consumer) == Counter(b"%d" % number for number in range(250))
        assert await redrive(client, letters, is_exact=is_exact, quiet_ms=50) == Redriven(0, 0)

    run(broker, scenario)


@pytest.mark.parametrize("is_exact", [True, False])
def test_encrypted_letters_stay_and_are_counted_in_every_run(broker, tmp_path, is_exact: bool) -> None:
    public, _ = pem_files(tmp_path)

    async def scenario(client: Client) -> None:
        letters, origin = f"sealed-{is_exact}", f"{ORIGIN}-sealed-{is_exact}"
        consumer = await client.subscribe(origin, "s", initial_position=InitialPosition.Earliest)
        async with await client.create_producer(
            letters,
            encryption_key="k",
            crypto_key_reader=CryptoKeyReader(public),
            batching_max_publish_delay_ms=1000,
        ) as producer:
            for _ in range(3):
                producer.send_nowait(b"sealed", properties={"REAL_TOPIC": origin})
            await producer.flush()
            producer.send_nowait(b"sealed", properties={"REAL_TOPIC": origin})
            await producer.flush()
        await _publish(client, letters, origin, range(5))
        assert await redrive(client, letters, is_exact=is_exact, quiet_ms=100) == Redriven(5, 0, 4)
        assert await _received(consumer) == Counter(b"%d" % number for number in range(5))
        assert await redrive(client, letters, is_exact=is_exact, quiet_ms=50) == Redriven(0, 0, 4)

    run(broker, scenario)


@pytest.mark.parametrize("is_exact", [True, False])
def test_large_letters_and_more_than_the_client_holds_go_back(broker, is_exact: bool) -> None:
    """One of 12 MB went in chunks, and all that go together are more than the client's memory takes."""

    async def scenario(client: Client) -> None:
        letters, origin = f"large-{is_exact}", f"{ORIGIN}-large-{is_exact}"
        consumer = await client.subscribe(origin, "s", initial_position=InitialPosition.Earliest)
        payloads = [bytes([number]) * (12_000_000 if number == 7 else 100_000) for number in range(40)]
        properties = {"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing"}
        async with await client.create_producer(letters, chunking_enabled=True, batching_enabled=False) as producer:
            for payload in payloads:
                await producer.send(payload, properties=properties)
        async with connect(broker.service_url, memory_limit_bytes=13_000_000) as small:
            assert await redrive(small, letters, is_exact=is_exact, quiet_ms=300) == Redriven(40, 0)
        assert [(await consumer.receive(5_000)).data() for _ in payloads] == payloads

    run(broker, scenario)


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_topic_that_takes_no_letters_keeps_those_of_others_from_nothing(broker, is_exact: bool) -> None:
    letters, ended, origin = (f"held-{is_exact}", f"{ORIGIN}-ended-{is_exact}", f"{ORIGIN}-goes-on-{is_exact}")

    async def scenario(client: Client) -> None:
        await (await client.create_producer(ended)).close()
        with admin.connect(broker.web_service_url) as asked:
            asked.topics.terminate(ended)
        consumer = await client.subscribe(origin, "s", initial_position=InitialPosition.Earliest)
        await _publish(client, letters, ended, range(3))
        await _publish(client, letters, origin, range(5))
        done = await redrive(client, letters, is_exact=is_exact, quiet_ms=100)
        assert done[:4] == (5, 0, 0, 3)
        assert done.why.startswith(f"{ended}: ")
        assert await _received(consumer) == Counter(b"%d" % number for number in range(5))
        assert (await redrive(client, letters, is_exact=is_exact, quiet_ms=50)).held == 3

    run(broker, scenario)


def test_letters_of_many_topics_leave_no_more_producers_than_the_limit(broker, monkeypatch) -> None:
    monkeypatch.setattr(redriving, "PRODUCERS_MAX", 2)
    monkeypatch.setattr(redriving, "TOGETHER", 3)
    open_at_once: list[int] = []

    class Counting:
        """A client that tells how many producers are open when one is wanted."""

        def __init__(self, client: Client) -> None:
            self._client = client

        def __getattr__(self, name: str) -> Any:
            open_at_once.append(len(self._client.lifetime.producers))
            return getattr(self._client, name)

    async def scenario(client: Client) -> None:
        for _ in range(2):
            for number in range(7):
                await _publish(client, "many-letters", f"{ORIGIN}-many-{number}", range(1))
        assert await redrive(cast("Client", Counting(client)), "many-letters", quiet_ms=100) == Redriven(14, 0)
        assert 2 < max(open_at_once) <= 5, "those kept, and those of three letters"
        assert not client.lifetime.producers

    run(broker, scenario)


def test_as_many_go_back_as_are_asked_for(broker) -> None:
    async def scenario(client: Client) -> None:
        await _publish(client, "some-letters", f"{ORIGIN}-some", range(5))
        await _publish(client, "some-letters", "persistent://public/other/orders", range(1))
        assert await redrive(client, "some-letters", quiet_ms=100, most=2) == Redriven(2, 0)
        # One that is refused counts, too: who asks for four gets to the end of them.
        assert await redrive(client, "some-letters", quiet_ms=100, most=4) == Redriven(3, 1)
        assert await redrive(client, "some-letters", quiet_ms=50, most=1) == Redriven(0, 0)

    run(broker, scenario)


def test_each_goes_back_once_though_runs_are_cut_off(broker, monkeypatch) -> None:
    monkeypatch.setattr(redriving, "TOGETHER", 5)

    async def scenario(client: Client) -> None:
        consumer = await client.subscribe(f"{ORIGIN}-cut", "s", initial_position=InitialPosition.Earliest)
        await _publish(client, "cut-letters", f"{ORIGIN}-cut", range(60))
        found: Counter[bytes] = Counter()
        for _ in range(5):
            async with connect(broker.service_url) as other:
                cut = asyncio.ensure_future(redrive(other, "cut-letters", quiet_ms=100))
                found[(await consumer.receive(5_000)).data()] += 1
                cut.cancel()
                await asyncio.gather(cut, return_exceptions=True)
        await redrive(client, "cut-letters", quiet_ms=300)
        found += await _received(consumer)
        assert found == Counter(b"%d" % number for number in range(60))

    run(broker, scenario)


@pytest.mark.parametrize(
    "origin",
    [
        "persistent://other/default/orders",
        "persistent://public/default-2/orders",
        "persistent://public/default/orders-billing-DLQ",
        "persistent://public/default/orders-billing-DLQ-refused",
        "persistent://public/default/__transaction_buffer_snapshot",
        "non-persistent://public/default/orders",
        "",
        "://",
    ],
)
def test_what_names_no_origin_that_is_allowed_goes_aside(origin: str) -> None:
    letters = TopicName.parse(LETTERS)
    given = {"REAL_TOPIC": origin}
    way = way_back(given, letters, "persistent://public/default/")
    assert way == (f"persistent://public/default/{LETTERS}-refused", given, True)


@pytest.mark.long
def test_each_goes_back_once_though_its_process_is_killed_twenty_times(broker) -> None:
    words = ["-m", "geminga", "dead-letters", "redrive", "killed-letters", "--url", broker.service_url]

    async def scenario(client: Client) -> None:
        consumer = await client.subscribe(f"{ORIGIN}-killed", "s", initial_position=InitialPosition.Earliest)
        found: Counter[bytes] = Counter()
        for number in range(20):
            await _publish(client, "killed-letters", f"{ORIGIN}-killed", range(number * 500, number * 500 + 500))
            process = await asyncio.create_subprocess_exec(sys.executable, *words)
            found[(await consumer.receive(60_000)).data()] += 1
            process.kill()
            await process.wait()
        last = await asyncio.create_subprocess_exec(sys.executable, *words)
        assert await last.wait() == 0
        found += await _received(consumer, 2_000)
        assert found == Counter(b"%d" % number for number in range(10_000))

    run(broker, scenario)


def test_what_stays_is_told_with_the_reason() -> None:
    assert encrypted_told(0) == ""
    assert encrypted_told(1).startswith("; 1 stays: encrypted")
    assert encrypted_told(2).startswith("; 2 stay: encrypted")
