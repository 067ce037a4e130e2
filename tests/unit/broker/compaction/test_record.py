"""What the compactions of a topic come to, in statistics and metrics."""

from __future__ import annotations

import pytest

from geminga.broker.compaction.record import CompactionRecord
from geminga.broker.composition.metric_levels import MetricLevels
from geminga.broker.composition.metrics import Metrics
from geminga.broker.core.compaction import newest
from geminga.broker.statistics.topics import TopicStatistics, compaction_stats
from support.house.exposition import samples
from support.stories.compaction_story import CompactionStory
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly, seconds


def compaction_metrics(world: BrokerWorld, *, topics: bool = True) -> dict[str, float]:
    statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
    page = Metrics(world.broker, statistics, cluster="c", levels=MetricLevels(topics=topics)).text()
    return {sample.name: sample.value for sample in samples(page) if "_compaction_" in sample.name}


def test_a_topic_that_was_compacted_has_pulsars_metrics() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(*((f"k{number % 3}", "value") for number in range(10)))
        assert not compaction_metrics(world)
        await story.compact()
        found = compaction_metrics(world)
        assert found["pulsar_compaction_succeed_count"] == 1
        assert found["pulsar_compaction_failed_count"] == found["geminga_compaction_failures_in_a_row"] == 0
        assert found["pulsar_compaction_removed_event_count"] == 7
        assert found["pulsar_compaction_compacted_entries_count"] == 3
        assert found["pulsar_compaction_compacted_entries_size"] > 3 * len("value")
        assert found["pulsar_compaction_latency_count"] == 3
        assert sum(value for name, value in found.items() if "latency_le" in name or "overflow" in name) == 3
        assert {"pulsar_compaction_read_throughput", "pulsar_compaction_write_throughput"} <= found.keys()
        assert "pulsar_compaction_duration_time_in_mills" in found
        await seconds(2)
        await story.publish(*((f"k{number}", "other") for number in range(4)))
        await story.compact()
        await seconds(2)
        rates = compaction_metrics(world, topics=False)
        # Once more, and what was compacted before is read with it, in both passes.
        assert rates["pulsar_compaction_read_throughput"] > rates["pulsar_compaction_write_throughput"] > 0
        assert rates["pulsar_compaction_removed_event_count"] == 7 + 3

    run_quietly(scenario)


def test_failures_in_a_row_are_counted_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"))
        for count in (1, 2):
            part = await story.compact()
            assert part.status == "ERROR"
            assert part.last_error.startswith("no temporary file can be made in /nowhere")
            assert compaction_metrics(world)["geminga_compaction_failures_in_a_row"] == count
        stats = compaction_stats(await story.topic())
        assert stats["lastCompactionFailedTimestamp"]
        assert not stats["lastCompactionSucceedTimestamp"]
        monkeypatch.setattr(newest, "KEY_BYTES", 1)
        await story.compact()
        found = compaction_metrics(world)
        assert found["geminga_compaction_failures_in_a_row"] == 0
        assert (found["pulsar_compaction_failed_count"], found["pulsar_compaction_succeed_count"]) == (2, 1)

    monkeypatch.setattr(newest, "KEY_BYTES", 1 << 21)  # the first key is too many
    run_quietly(scenario, compaction_directory="/nowhere/at/all", compaction_keys_mb=1)


def test_the_last_duration_is_of_a_run_that_succeeded() -> None:
    record = CompactionRecord()
    record.succeeded(1000, 0.25)
    record.failed(2000)
    assert (record.duration_ms, record.succeeded_ms, record.failed_ms, record.failures_in_a_row) == (250, 1000, 2000, 1)
