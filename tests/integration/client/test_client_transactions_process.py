"""Transactions of both clients against a broker of its own, and the example that joins two topics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from geminga import Standalone
from geminga.client import (
    InitialPosition,
    InvalidMessage,
    InvalidTxnStatusError,
    MessageTooBig,
    TransactionState,
    blocking,
)
from geminga.client import Timeout as ClientTimeout
from geminga.client.blocking._transaction import Transaction
from support.house.source_tree import ROOT
from support.worlds.partitions import set_partitions


@pytest.fixture(scope="module")
def transacting() -> Iterator[Standalone]:
    """A broker with transactions."""
    with Standalone(config={"transactionCoordinatorEnabled": True}) as running:
        yield running


@pytest.fixture
def client(transacting: Standalone) -> Iterator[blocking.Client]:
    with blocking.connect(transacting.service_url) as connected:
        yield connected


def everything(consumer: blocking.Consumer[bytes], wait_ms: int = 500) -> list[bytes]:
    found = []
    while True:
        try:
            message = consumer.receive(wait_ms)
        except ClientTimeout:
            return found
        found.append(message.data())
        consumer.acknowledge(message)


def subscribed(client: blocking.Client, topic: str) -> blocking.Consumer[bytes]:
    return client.subscribe(topic, "check", initial_position=InitialPosition.Earliest)


def test_blocking_transactions_over_partitions(client: blocking.Client, transacting: Standalone, topic: str) -> None:
    set_partitions(transacting.web_service_url, topic, 3)
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    with client.transaction(timeout=30) as txn:
        assert isinstance(txn, Transaction)
        assert txn.state is TransactionState.OPEN
        for index in range(100):
            producer.send_nowait(b"%d" % index, txn=txn, partition_key=str(index))
        producer.send(b"last", txn=txn)
    assert txn.state is TransactionState.COMMITTED
    with pytest.raises(KeyError), client.transaction() as txn:
        producer.send_nowait(b"never", txn=txn)
        raise KeyError
    assert txn.state is TransactionState.ABORTED
    messages = [consumer.receive(5000) for _ in range(101)]
    assert sorted(m.data() for m in messages) == sorted([b"last", *(b"%d" % i for i in range(100))])
    for commit in (False, True):
        txn = client.transaction()
        consumer.acknowledge(messages, txn=txn)
        (txn.commit if commit else txn.abort)()
        with pytest.raises(InvalidTxnStatusError):
            consumer.acknowledge(messages, txn=txn)
    consumer.close()
    with client.subscribe(topic, "s") as again:
        assert everything(again) == []


def test_what_a_blocking_send_nowait_could_not_send_is_not_committed(client: blocking.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    with pytest.raises(MessageTooBig), client.transaction() as txn:
        producer.send_nowait(b"small", txn=txn)
        producer.send_nowait(bytes(6 << 20), txn=txn)
    assert txn.state is TransactionState.ABORTED
    with pytest.raises(InvalidMessage, match="expected a transaction"):
        producer.send(b"x", txn="t")  # type: ignore[arg-type]
    producer.send(b"after")
    assert everything(subscribed(client, topic)) == [b"after"]


def test_the_example_joins_two_topics_each_pair_once(
    client: blocking.Client, transacting: Standalone, topic: str
) -> None:
    first, second, result = f"{topic}-orders", f"{topic}-payments", f"{topic}-paid"
    orders, payments = client.create_producer(first), client.create_producer(second)
    program = str(ROOT / "examples" / "join_in_transactions.py")

    def run(results: int) -> None:
        command = [sys.executable, program, transacting.service_url, first, second, result, "--results", str(results)]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT)

    for index in range(300):
        orders.send_nowait(b"order-%d" % index, partition_key=str(index))
    for index in reversed(range(200)):
        payments.send_nowait(b"payment-%d" % index, partition_key=str(index))
    orders.flush()
    payments.flush()
    run(200)
    for index in range(200, 300):
        payments.send_nowait(b"payment-%d" % index, partition_key=str(index))
    payments.flush()
    run(100)  # what had no other half is there still
    assert sorted(everything(subscribed(client, result))) == sorted(b"order-%d+payment-%d" % (i, i) for i in range(300))
    for name in (first, second):
        with client.subscribe(name, "join") as left:
            assert everything(left) == []
