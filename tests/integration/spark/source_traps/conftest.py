"""A broker whose ledgers roll over after a few entries, one for each file, and options of a source for a topic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import geminga
from geminga.client.blocking import Client, connect
from geminga.spark.process.clients import ClientSession, session_for
from geminga.spark.rules.client_options import ClientConfiguration
from support.connector.rolled_topics import LEDGER_ENTRIES

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    config = {"managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    with geminga.Standalone(config=config) as one:
        yield one


@pytest.fixture(scope="module")
def client(broker) -> Iterator[Client]:
    with connect(broker.service_url) as one:
        yield one


@pytest.fixture(scope="module")
def session(broker) -> ClientSession:
    return session_for(ClientConfiguration(broker.service_url))


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/traps-{next(_numbers)}"


@pytest.fixture
def options(broker, topic) -> dict[str, str]:
    return {"service.url": broker.service_url, "topic": topic, "startingOffsets": "earliest", "longPollMs": "20"}
