"""Dead letters are sent back from the console, with the visitor's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import geminga
from geminga.client import Client, InitialPosition, connect
from support.worlds.console import Visitor

LETTERS, ORIGIN = "persistent://public/default/orders-billing-DLQ", "persistent://public/default/orders"


@pytest.fixture(params=[True, False], ids=["transactions", "none"])
def broker(request: pytest.FixtureRequest) -> Iterator[geminga.Standalone]:
    config = {"transactionCoordinatorEnabled": "true" if request.param else "false"}
    with geminga.Standalone(config=config) as running:
        yield running


async def _publish(client: Client) -> None:
    async with await client.create_producer(LETTERS) as producer:
        for number in range(5):
            properties = {"REAL_TOPIC": ORIGIN, "REAL_SUBSCRIPTION": "billing"}
            await producer.send(b"%d" % number, partition_key=f"k{number}", properties=properties)


async def _received(client: Client) -> list[bytes]:
    consumer = await client.subscribe(ORIGIN, "s", initial_position=InitialPosition.Earliest)
    return [(await consumer.receive(5000)).data() for _ in range(3)]


def test_as_many_letters_go_back_as_were_asked_for(broker: geminga.Standalone) -> None:
    async def with_client(work):
        async with connect(broker.service_url) as client:
            return await work(client)

    asyncio.run(with_client(_publish))
    with Visitor(broker.web_service_url) as visitor:
        answer = visitor.act("redrive", {"most": "3"}, topic=LETTERS)
        if "transactions" in answer.text and answer.status_code == 409:
            assert "The cluster has no transactions: say that a letter may be sent back twice" in answer.text
            answer = visitor.act("redrive", {"most": "3", "at_least_once": "yes"}, topic=LETTERS)
        assert "3 letters sent back." in answer.text
        assert "2 entries of" in answer.text
        too_many = visitor.act("redrive", {"most": "1001"}, topic=LETTERS)
        assert too_many.status_code == 400
    assert asyncio.run(with_client(_received)) == [b"0", b"1", b"2"]
