"""Spans of a real standalone in a collector; and nothing of OpenTelemetry where nobody asks for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tools.standalone_process import StandaloneProcess

from geminga import client as geminga
from support.processes.trace_collector import attributes_of, collecting

pytestmark = pytest.mark.integration

EARLIEST = geminga.InitialPosition.Earliest
TOPIC = "persistent://public/default/spans"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


async def one_of_each(url: str) -> None:
    """A message that is traced by its sender, its acknowledgment, and a transaction of one message."""
    async with geminga.connect(url) as client:
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"traced", properties={"traceparent": PARENT})
        message = await consumer.receive()
        # It is given on as it came.
        assert message.properties()["traceparent"] == PARENT
        await consumer.acknowledge(message)
        told = await client.subscribe(TOPIC, "told", ack_receipt_enabled=True, initial_position=EARLIEST)
        await told.acknowledge(await told.receive())
        async with client.transaction() as txn:
            await producer.send(b"in it", txn=txn)


def test_spans_of_rest_publish_acknowledge_commit_and_ledgers_reach_a_collector(tmp_path: Path) -> None:
    with collecting() as received:
        broker = StandaloneProcess(
            tmp_path / "data",
            log=tmp_path / "log",
            environment={
                "OTEL_TRACES_EXPORTER": "otlp",
                "OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint,
                "OTEL_SERVICE_NAME": "the-broker",
            },
        )
        broker.start()
        try:
            asyncio.run(one_of_each(broker.service_url))
            # Of what "s" took a write may be under way, which is not the request's.
            url = f"{broker.web_url}/admin/v2/persistent/public/default/spans/subscription/told/skip/1"
            with urlopen(Request(url, method="POST", headers={"traceparent": PARENT})):
                pass
        finally:
            assert broker.stop() == 0
    assert received.services == {"the-broker"}
    published = received.named("publish", lambda found: found["messaging.destination.name"] == TOPIC)
    first, second = sorted(published, key=lambda span: span.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, "b7ad6b7169203331")
    (transaction,) = received.named("transaction")
    assert attributes_of(transaction)["messaging.pulsar.transaction.outcome"] == "commit"
    assert (second.trace_id, second.parent_span_id) == (transaction.trace_id, transaction.span_id)
    assert transaction.end_time_unix_nano >= second.end_time_unix_nano > second.start_time_unix_nano
    acknowledged = received.named("acknowledge", lambda found: found["messaging.destination.name"] == TOPIC)
    by_kind = {attributes_of(span)["messaging.consumer.group.name"]: span for span in acknowledged}
    assert {name: attributes_of(span)["messaging.pulsar.acknowledged"] for name, span in by_kind.items()} == {
        "s": "taken",
        "told": "durable",
    }
    assert attributes_of(by_kind["s"])["messaging.batch.message_count"] == 1
    # Until the cursor's state was stored.
    writes = [span for span in received.named("ledger add") if span.parent_span_id == by_kind["told"].span_id]
    assert all(span.end_time_unix_nano <= by_kind["told"].end_time_unix_nano for span in writes)
    assert len(writes) == 1
    dispatched = received.named("dispatch", lambda found: found["messaging.destination.name"] == TOPIC)
    traced = [span for span in dispatched if span.trace_id.hex() == TRACE]
    assert {attributes_of(span)["messaging.consumer.group.name"] for span in traced} == {"s", "told"}
    assert {span.parent_span_id.hex() for span in traced} == {"b7ad6b7169203331"}
    assert all(span.start_time_unix_nano >= first.end_time_unix_nano for span in traced)
    (request,) = received.named("POST")
    assert request.trace_id.hex() == TRACE
    assert attributes_of(request)["http.response.status_code"] == 204
    # What the request had stored is a part of it.
    stored = received.named("ledger add")
    assert request.span_id in {span.parent_span_id for span in stored}


def test_nothing_of_it_is_loaded_where_nobody_asks() -> None:
    program = "import sys, geminga.app.servers.standalone; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
