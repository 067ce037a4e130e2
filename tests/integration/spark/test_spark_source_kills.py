"""The broker is killed under the source: driver and tasks wait for it and go on where they were. Without a JVM."""

from __future__ import annotations

import json
import threading

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client.blocking import connect
from support.connector.spark_source import Stream, values

MESSAGES = 6000


@pytest.mark.slow
def test_stream_goes_on_where_it_was_when_the_broker_is_killed_and_started_again(tmp_path):
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as broker:
        sent = [b"%d" % index for index in range(MESSAGES)]
        with (
            connect(broker.service_url) as client,
            client.create_producer("kills", batching_max_messages=7) as producer,
        ):
            for value in sent:
                producer.send_nowait(value)
            producer.flush()
        stream = Stream(
            {
                "service.url": broker.service_url,
                "topic": "kills",
                "startingOffsets": "earliest",
                "subscription": "mine",
                "maxMessagesPerTrigger": "1500",
                "numPartitions": "1",
                "arrowBatchBytes": "1",
                "pulsar.reader.receiverQueueSize": "50",
            }
        )

        def kill() -> threading.Thread:
            broker.kill()
            starting = threading.Thread(target=broker.start)
            starting.start()
            return starting

        found = values(stream.batch())
        # The driver asks for the next batch while the broker is gone.
        starting = kill()
        assert stream.plan()
        stream.commit(-2)
        starting.join()
        # A task reads while it does.
        (part,) = stream.reader.partitions(stream.start_of(1), json.loads(stream.log[1]))
        for number, batch in enumerate(stream.reader.read(part)):
            found += batch.column(0).to_pylist()
            if number == 10:
                starting = kill()
        assert number > 100
        starting.join()
        for rows in stream.batches():
            found += values(rows)
        assert found == sent
        stream.stop()
