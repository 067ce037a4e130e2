"""A transaction left open costs a broker process nothing while consumers wait behind it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import ConsumerType, InitialPosition, MessageId, Timeout, blocking

SECONDS = 10.0
#: Of CPU, more than without: a look at the clock, an alarm's timer. A loop would take all ten.
ALLOWED_S = 0.3


def spent(process: StandaloneProcess) -> float:
    before = process.cpu_seconds()
    # What a process does in real time is what is measured: somebody waits for nothing so long.
    threading.Event().wait(SECONDS)
    return process.cpu_seconds() - before


@pytest.mark.long
def test_ten_seconds_behind_an_open_transaction_take_no_more_than_ten_idle_ones(tmp_path: Path) -> None:
    topic = "held-back"
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "log")
    with process, blocking.connect(process.service_url) as client:
        producer = client.create_producer(topic)
        consumers = [
            client.subscribe(topic, kind.name, consumer_type=kind, initial_position=InitialPosition.Earliest)
            for kind in (ConsumerType.Exclusive, ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared)
        ]
        reader = client.create_reader(topic, MessageId.earliest)
        producer.send(b"before")
        first = [consumer.receive(5_000) for consumer in consumers]
        assert reader.read_next(5_000).data() == b"before"
        idle = spent(process)
        txn = client.transaction(timeout=60)
        producer.send(b"held", txn=txn)
        consumers[2].acknowledge(first[2], txn=txn)
        for index in range(100):
            producer.send(b"behind %d" % index)
        assert not reader.has_message_available()
        open_ = spent(process)
        print(f"CPU in {SECONDS:.0f} s: idle {idle:.2f} s, with an open transaction {open_:.2f} s")
        for consumer in consumers:
            with pytest.raises(Timeout):
                consumer.receive(0)
        assert open_ <= idle + ALLOWED_S
        txn.abort()
        for consumer in consumers:
            assert consumer.receive(5_000).data() == b"behind 0"
