"""Metrics of schemas: what was asked for, added, deleted and compared, by namespace."""

from __future__ import annotations

from contextlib import suppress

import pytest

from geminga.broker.composition.metrics import Metrics
from geminga.broker.schema import operations
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.operations import GET, SchemaOperations
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.statistics.topics import TopicStatistics
from geminga.model.errors import IncompatibleSchemaError
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.exposition import samples
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.policy_levels import NAME

ID = schema_id_of(NAME)
TEXT = SchemaInfo("s", SchemaType.STRING, b"")
NUMBER = SchemaInfo("s", SchemaType.INT32, b"")


def schema_metrics(world: BrokerWorld) -> dict[str, float]:
    page = Metrics(world.broker, TopicStatistics(world.broker.runtime.clock, world.broker), cluster="c").text()
    found = [sample for sample in samples(page) if sample.name.startswith("pulsar_schema_")]
    assert {sample.labels["namespace"] for sample in found} <= {"public/default"}
    return {sample.name.removeprefix("pulsar_schema_"): sample.value for sample in found}


def test_operations_are_counted_and_timed_once_somebody_uses_schemas() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert not schema_metrics(world)
        registry = world.broker.schemas.registry
        await registry.put_if_absent(ID, TEXT, Strategy.FULL)
        with pytest.raises(IncompatibleSchemaError):
            await registry.put_if_absent(ID, NUMBER, Strategy.FULL)
        await registry.check(ID, TEXT, Strategy.FULL)
        assert await registry.latest(ID) is not None
        await registry.mark_deleted(ID)
        found = schema_metrics(world)
        assert (found["put_ops_latency_count"], found["put_ops_failed_total"]) == (1, 1)
        assert (found["del_ops_latency_count"], found["del_ops_failed_total"]) == (1, 0)
        # One of them for the check.
        assert (found["get_ops_latency_count"], found["get_ops_failed_total"]) == (2, 0)
        assert (found["compatible_total"], found["incompatible_total"]) == (1, 1)

    run_with_broker(scenario)


def test_namespaces_that_are_told_of_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "NAMESPACES_MAX", 2)
    found = SchemaOperations(lambda: 0.0)
    for name in ("a/a/t", "b/b/t", "a/a/u", "c/c/t"):
        with suppress(ZeroDivisionError), found.timed(GET, name):
            raise ZeroDivisionError
    told = {namespace: values["pulsar_schema_get_ops_failed_total"] for namespace, values in found.metrics()}
    assert told == {"a/a": 2, "c/c": 1}
