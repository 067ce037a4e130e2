"""The policy of persistence over REST: a topic in use makes its next ledgers with other quorums, and loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pulsar
import pytest

from geminga import Standalone
from support.processes.official import quiet_client
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

TOPIC = "persistent/public/default/persisted"
POLICY = {
    "bookkeeperEnsemble": 3,
    "bookkeeperWriteQuorum": 3,
    "bookkeeperAckQuorum": 2,
    "managedLedgerMaxMarkDeleteRate": 0.0,
}


def quorums(standalone: Standalone, ledger_id: int) -> tuple[int, int, int]:
    bookkeeper: Any = standalone._server.broker.ledgers.bookkeeper  # type: ignore[union-attr]
    loop: Any = standalone._loop
    metadata = asyncio.run_coroutine_threadsafe(bookkeeper.read_ledger(ledger_id), loop).result(5).metadata
    return metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum


def test_policy_of_a_topic_in_use_holds_from_its_next_ledger_on(tmp_path) -> None:
    config = {
        "managedLedgerMaxEntriesPerLedger": 4,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerDefaultEnsembleSize": 2,
        "managedLedgerDefaultWriteQuorum": 2,
        "managedLedgerDefaultAckQuorum": 2,
    }
    with Standalone(config=config, bookies=3) as running:
        rest = Rest(running.web_service_url)
        client: pulsar.Client = quiet_client(running.service_url, tmp_path)
        consumer = client.subscribe(TOPIC.replace("/", "://", 1), "s")
        producer = client.create_producer(TOPIC.replace("/", "://", 1), batching_enabled=False)
        assert rest.get(f"{TOPIC}/persistence?applied=true").json["bookkeeperEnsemble"] == 2
        for number in range(2):
            producer.send(b"%d" % number)
        answer = rest.post(f"{TOPIC}/persistence", POLICY)
        assert answer.status == 204, answer
        for number in range(2, 8):
            producer.send(b"%d" % number)
        ledgers = [item["ledgerId"] for item in rest.get(f"{TOPIC}/internalStats").json["ledgers"]]
        assert [quorums(running, ledger_id) for ledger_id in ledgers] == [(2, 2, 2), (3, 3, 2)]
        for number in range(8):
            message = consumer.receive(5000)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)
        assert rest.get(f"{TOPIC}/persistence").json == POLICY
        refused = rest.post(f"{TOPIC}/persistence", {**POLICY, "bookkeeperAckQuorum": 4})
        assert refused.status == 400, refused.reason
        assert rest.delete(f"{TOPIC}/persistence").status == 204
        for number in range(4):
            producer.send(b"%d" % number)
        last = rest.get(f"{TOPIC}/internalStats").json["ledgers"][-1]["ledgerId"]
        assert quorums(running, last) == (2, 2, 2)
        client.close()
