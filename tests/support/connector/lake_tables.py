"""Topics of which a part is in a lake, for tests of how Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

import geminga
from geminga.app.commands.cli import app_for
from geminga.client import CompressionType
from geminga.client.blocking import Client, connect
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from support.connector.spark_source import read_batch

TOPIC = "persistent://public/default/lake-table"
#: Ledgers of 8 entries, kept for good, offloaded by command.
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": 8,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerOffloadDriver": "filesystem",
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


class Table(NamedTuple):
    """A topic of which a part is in a lake."""

    options: dict[str, str]
    lake: Path
    #: What the broker alone gives.
    rows: list[dict[str, Any]]
    broker: geminga.Standalone
    client: Client


def offload(broker: geminga.Standalone, topic: str) -> None:
    """All closed ledgers of a topic or partition."""
    command = ["lake", "offload", topic, "--admin-url", broker.web_service_url, "--wait"]
    assert CliRunner().invoke(app_for(["lake"]), command).exit_code == 0


def publish(client: Client) -> None:
    """Messages of every kind that readers get, and of those that they do not."""
    with client.create_producer(TOPIC, batching_max_messages=7, compression_type=CompressionType.LZ4) as producer:
        for index in range(150):
            some = {"event_timestamp": index} if index % 3 else {}
            key = b"\xff%d" % index if index % 5 == 0 else f"k{index}"
            value = None if index % 11 == 0 else b"" if index % 13 == 0 else b"v%d" % index
            properties = {"n": str(index), "": "x"} if index % 4 == 0 else {}
            producer.send_nowait(value, partition_key=key, properties=properties, **some)
            if index % 17 == 0:
                producer.flush()
        producer.flush()
    with client.create_producer(
        TOPIC, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=100
    ) as one:
        for index in range(12):
            one.send(b"alone%d" % index, event_timestamp=index)
        one.send(None)
        one.send(b"c" * 1000)
        for commit in (True, False, True):
            txn = client.transaction().__enter__()
            for _ in range(3):
                one.send(b"in" if commit else b"out", txn=txn)
            txn.commit() if commit else txn.abort()
        for index in range(35):
            one.send(b"more%d" % index, partition_key="x")


@contextmanager
def lake_table(lake: Path) -> Iterator[Table]:
    """A broker with such a topic, and a tail of one message."""
    settings = {**SETTINGS, "fileSystemURI": str(lake)}
    with geminga.Standalone(None, settings) as broker, connect(broker.service_url) as client:
        publish(client)
        offload(broker, TOPIC)
        with client.create_producer(TOPIC) as producer:
            producer.send(b"tail")
        columns = {"service.url": broker.service_url, "topic": TOPIC, "metadataColumns": ",".join(ALL_COLUMNS)}
        yield Table({**columns, "lake.root": str(lake)}, lake, read_batch(columns), broker, client)
