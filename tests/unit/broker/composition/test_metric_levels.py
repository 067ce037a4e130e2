"""What ``expose*InPrometheus`` add to ``/metrics``, and where the number of series ends."""

from __future__ import annotations

import pytest

from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.metric_settings import metric_levels
from geminga.broker.composition.metric_levels import MetricLevels, Row
from geminga.broker.composition.metrics import STEPS_PER_TURN, Metrics
from geminga.broker.statistics.topics import TopicStatistics
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model import TopicName
from geminga.model.position import Position
from geminga.runtime import next_turn, spawn, wait_ms
from support.house.exposition import Sample, samples
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.policy_levels import topic_of

PARTITION = f"{TOPIC}-partition-3"


async def used(world: BrokerWorld) -> None:
    """Two topics, one of them a partition: a producer, a consumer that acknowledged nothing, a message."""
    client = await world.client()
    await world.ledgers.create(TopicName.parse(PARTITION).managed_ledger_name)
    for number, topic in enumerate((TOPIC, PARTITION), 1):
        await client.create_producer(topic, producer_id=number)
        await client.subscribe(topic, consumer_id=number)
        await client.publish(0, producer_id=number)
    await wait_ms(100)


def page_of(world: BrokerWorld, levels: MetricLevels) -> list[Sample]:
    statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
    return samples(Metrics(world.broker, statistics, cluster="c", levels=levels).text())


def named(page: list[Sample], start: str) -> list[Sample]:
    return [sample for sample in page if sample.name.startswith(start)]


def test_a_page_of_many_topics_is_made_in_turns() -> None:
    """It was made in one: with 2,000 topics nobody was served for most of a second, at each scrape."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        for number in range(3 * STEPS_PER_TURN):
            await client.create_producer(f"{TOPIC}-{number}", producer_id=number)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        metrics = Metrics(world.broker, statistics, cluster="c")
        made, turns = spawn(metrics.page(), name="scrape"), 0
        while not made.done():
            await next_turn()
            turns += 1
        assert turns >= 3
        assert made.result().decode() == metrics.text()
        counted = [sample.value for sample in samples(made.result().decode()) if sample.name == "pulsar_topics_count"]
        assert counted == [3 * STEPS_PER_TURN]
        # One that goes amid the page is not on it, and ends nothing.
        last = f"{TOPIC}-{3 * STEPS_PER_TURN - 1}"
        made = spawn(metrics.page(), name="scrape")
        await next_turn()
        await world.broker.registry.unload(TopicName.parse(last))
        page = (await made).decode()
        assert f'topic="{last}"' not in page
        assert f'topic="{TOPIC}-0"' in page

    run_with_broker(scenario)


def test_a_page_of_a_topic_with_many_subscriptions_is_made_in_turns() -> None:
    """It was made in one: a topic with 10,000 of them held everybody up for most of a second, at each scrape."""
    levels = MetricLevels(consumers=True, producers=True, cursors=True, subscription_backlog_size=True)

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        count = 3 * STEPS_PER_TURN
        for number in range(count):
            await client.subscribe(consumer_id=number, subscription=f"s{number:03}")
        leaving = await world.client()
        await leaving.subscribe(subscription="leaves", durable=False)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        metrics = Metrics(world.broker, statistics, cluster="c", levels=levels)
        made, turns = spawn(metrics.page(), name="scrape"), 0
        while not made.done():
            await next_turn()
            turns += 1
        assert turns >= 6  # series of them all, and of their cursors
        assert made.result().decode() == metrics.text()
        # What comes and goes amid the page ends nothing: there it is what it was when its turn came.
        made = spawn(metrics.page(), name="scrape")
        await next_turn()
        leaving.lose()
        await client.subscribe(consumer_id=count, subscription="later")
        assert not made.done()
        page = samples((await made).decode())
        told = {dict(sample.labels).get("subscription") for sample in named(page, "pulsar_subscription_back_log")}
        assert told == {f"s{number:03}" for number in range(count)}
        (counted,) = named(page, "pulsar_subscriptions_count")
        assert counted.value == count + 1

    run_with_broker(scenario)


def test_consumers_producers_and_cursors_have_series_if_asked_for() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await used(world)
        plain = page_of(world, MetricLevels())
        for start in ("pulsar_consumer_", "pulsar_producer_", "pulsar_ml_cursor_", "geminga_subscription_backlog"):
            assert not named(plain, start)
        page = page_of(
            world, MetricLevels(consumers=True, producers=True, cursors=True, subscription_backlog_size=True)
        )
        (unacked,) = [
            sample for sample in named(page, "pulsar_consumer_unacked_messages") if sample.labels["topic"] == TOPIC
        ]
        assert unacked.value == 0  # an exclusive one is not counted
        assert {"subscription", "consumer_name", "consumer_id"} <= unacked.labels.keys()
        (permits, _) = named(page, "pulsar_consumer_available_permits")
        assert permits.value == 999
        assert {sample.labels["producer_id"] for sample in named(page, "pulsar_producer_msg_rate_in")} == {"1", "2"}
        assert len(named(page, "pulsar_producer_msg_average_Size")) == 2
        ledgers = {sample.labels["ledger_name"] for sample in named(page, "pulsar_ml_cursor_persistLedgerSucceed")}
        assert "public/default/persistent/topic" in ledgers
        assert {sample.name.removeprefix("pulsar_ml_cursor_") for sample in named(page, "pulsar_ml_cursor_")} == {
            "nonContiguousDeletedMessagesRange",
            "persistLedgerSucceed",
            "persistLedgerErrors",
            "persistZookeeperSucceed",
            "persistZookeeperErrors",
            "writeLedgerSize",
            "writeLedgerLogicalSize",
            "readLedgerSize",
        }
        # Made by this process: the node was written, and nothing was read.
        assert all(sample.value >= 1 for sample in named(page, "pulsar_ml_cursor_persistZookeeperSucceed"))
        assert all(sample.value == 0 for sample in named(page, "pulsar_ml_cursor_readLedgerSize"))
        assert all(sample.value > 0 for sample in named(page, "geminga_subscription_backlog_bytes"))

    run_with_broker(scenario)


def test_partition_is_a_label_of_its_own_if_asked_for() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await used(world)
        page = page_of(world, MetricLevels(splits_partitions=True))
        found = {(each.labels["topic"], each.labels["partition"]) for each in named(page, "pulsar_in_messages_total")}
        assert found == {(TOPIC, "-1"), (TOPIC, "3")}

    run_with_broker(scenario)


def test_managed_ledgers_are_summed_by_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await used(world)
        page = page_of(world, MetricLevels())
        (added,) = named(page, "pulsar_ml_AddEntrySucceed")
        assert (added.value, added.labels["namespace"]) == (2, "public/default")
        sizes = {each.labels["quantile"]: each.value for each in page if each.name == "pulsar_ml_EntrySizeBuckets"}
        assert sizes["0.0_128.0"] == 2 == sum(sizes.values())
        assert not named(page_of(world, MetricLevels(managed_ledgers=False)), "pulsar_ml_AddEntry")

    run_with_broker(scenario)


def test_topics_beyond_the_limit_have_no_series_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await used(world)
        whole = page_of(world, MetricLevels())
        (series,) = named(whole, "geminga_metrics_series")
        assert series.value == len(whole)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        metrics = Metrics(world.broker, statistics, cluster="c", levels=MetricLevels(series_max=1))
        for _ in range(2):
            page = samples(metrics.text())
            assert len(named(page, "pulsar_in_messages_total")) == 1
            (left_out,) = named(page, "geminga_metrics_topics_left_out")
            assert left_out.value == 1
            # Totals are of all.
            (topics,) = named(page, "pulsar_broker_topics_count")
            assert topics.value == 2

    run_with_broker(scenario)
    assert [record.message for record in caplog.records if "gemingaMetricsSeriesMax=1" in record.message] == [
        "metrics: 1 topics have no series, for there are gemingaMetricsSeriesMax=1 already; totals of the broker are "
        "of all; exposeTopicLevelMetricsInPrometheus=false has series for each namespace instead"
    ]


def test_settings_say_what_has_series() -> None:
    assert metric_levels(ServerConfig()) == MetricLevels()
    assert metric_levels(ServerConfig(bundle_metrics=True, metric_series_max=7)) == MetricLevels(
        bundles=True, series_max=7
    )


def test_lookups_and_cache_are_counted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        from geminga.model.errors import GemingaError
        from geminga.model.topic_name import TopicName

        lookup = world.broker.lookup
        await lookup.find(TopicName.parse(TOPIC))
        with pytest.raises(GemingaError):
            await lookup.find(TopicName.parse("persistent://public/none/t"))
        told = lookup.metrics()
        assert told["pulsar_broker_lookup_answers_total"] == told["pulsar_broker_lookup_failures_total"] == 1
        assert told["pulsar_broker_lookup_redirects_total"] == told["pulsar_broker_lookup_pending_requests"] == 0

    run_with_broker(scenario)


def test_a_cursor_tells_what_was_written_of_it_and_read_when_it_was_brought_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe()
        positions = [Position(*await client.publish(number)) for number in range(6)]
        cursor = (await topic_of(world)).subscriptions["sub"].cursor
        cursor.acknowledge(positions[1::2])
        await cursor.flush()

        def value(metric: str) -> float:
            (found,) = [
                sample.value
                for sample in named(page_of(world, MetricLevels(cursors=True)), f"pulsar_ml_cursor_{metric}")
                if sample.labels["ledger_name"] == "public/default/persistent/topic"
            ]
            return found

        assert value("persistLedgerSucceed") == 1
        written = value("writeLedgerLogicalSize")
        assert value("writeLedgerSize") == 2 * written > 0
        # More than its node takes: the cursor ledger has the state.
        await world.restart()
        await topic_of(world)
        assert value("readLedgerSize") == written
        assert value("writeLedgerSize") == 0

    ledgers = ManagedLedgerConfig(ensemble_size=2, write_quorum=2, max_ranges_in_metadata=1)
    run_with_broker(scenario, bookies=2, ledger_config=ledgers)


def test_who_asks_while_a_page_is_written_shares_the_next() -> None:
    """Of a thousand scrapes at a time each had a page of its own in memory."""

    async def scenario(world: BrokerWorld) -> None:
        written = 0

        def rows() -> list[Row]:
            nonlocal written
            written += 1
            return []

        client = await world.client()
        for number in range(3 * STEPS_PER_TURN):
            await client.create_producer(f"{TOPIC}-{number}", producer_id=number)
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        metrics = Metrics(world.broker, statistics, cluster="c", rows=rows)
        first = spawn(metrics.page(), name="scrape")
        await next_turn()
        await next_turn()
        others = [spawn(metrics.page(), name="scrape") for _ in range(100)]
        page = await first
        assert all([(await other).count(b"\n") == page.count(b"\n") for other in others])
        assert written == 2

    run_with_broker(scenario)
