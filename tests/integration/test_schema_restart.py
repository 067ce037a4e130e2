"""Schemas after kill -9: what a client was told is there, and what the registry holds can be read in Pulsar's form."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String
from tools.standalone_process import StandaloneProcess

import geminga.client.blocking as blocking
from geminga.client import IncompatibleSchema
from geminga.client import schema as ours
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/schemas"


class First(Record):
    a = Integer(required=True)


class Second(Record):
    a = Integer(required=True)
    b = String(required_default=True)


@dataclass
class Unfit:
    a: str


@dataclass
class Both:
    a: ours.Int32
    b: str | None = None


def test_versions_survive_kill_9_and_are_read_by_both_clients(tmp_path) -> None:
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as process:
        client = quiet_client(process.service_url, tmp_path)
        for record in (First, Second):
            producer = client.create_producer(TOPIC, schema=AvroSchema(record))
            producer.send(record(a=1))
        process.kill()
        with suppress(pulsar.NotConnected):  # it may say so of the broker that is gone
            client.close()
        process.start()

        found = json.loads(process.request("GET", "/admin/v2/schemas/public/default/schemas/schemas"))
        assert [json.loads(item["data"]) for item in found["getSchemaResponses"]] == [First.schema(), Second.schema()]
        client = quiet_client(process.service_url, tmp_path)
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, schema=AvroSchema(First))
        assert [reader.read_next(10_000).value().a for _ in range(2)] == [1, 1]
        client.close()

        with blocking.connect(process.service_url) as client:
            with pytest.raises(IncompatibleSchema, match="a: "):
                client.create_producer(TOPIC, schema=ours.AvroSchema(Unfit))
            consumer = client.subscribe(
                TOPIC, "s", schema=ours.AvroSchema(Both), initial_position=blocking.InitialPosition.Earliest
            )
            messages = [consumer.receive(10_000) for _ in range(2)]
            assert [message.value() for message in messages] == [Both(1), Both(1)]
            assert [message.schema_version()[-1] for message in messages] == [0, 1]
