"""Entry filters of topics that are not persistent: what is judged, and what is dropped meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.filters import passing
from geminga.broker.filters.pool import FilterPool
from geminga.broker.filters.topic_filters import TopicFilters
from geminga.broker.handlers import subscription as handlers
from geminga.broker.publishing.life import TopicLife
from geminga.broker.subscription.limits import NO_LIMITS, ConsumerCounts
from geminga.broker.subscription.non_persistent import subscribe_non_persistent
from geminga.broker.subscription.stats import subscription_counts
from geminga.entry_filters import ACCEPT, REJECT, RESCHEDULE
from geminga.model import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.subscriptions import RecordingConnection, Sub, settle

VERDICTS = {"a": ACCEPT, "r": REJECT, "p": RESCHEDULE}


class Topic:
    """A topic as the subscriptions need it."""

    def __init__(self, runtime, **config):
        self.name = TopicName.parse("non-persistent://public/default/t")
        self.life = TopicLife(self.name, runtime.clock)
        self.limits = NO_LIMITS
        self.consumer_counts = ConsumerCounts()
        self.hides = ()
        self.subscriptions = {}
        self.services = SimpleNamespace(runtime=runtime, config=BrokerConfig(**config), consumer_kind=None)
        self.processes = SimulatedProcesses({"f": lambda entry: VERDICTS[entry.key[0]]})
        self.pool = FilterPool(self.services.config, self.processes, runtime.clock.monotonic, self)
        self.filters = TopicFilters(("f",), self.pool)

    def broke(self, what, error):
        raise error

    async def join(self, connection, sub_type=Sub.Shared):
        request = Sub(topic=str(self.name), subscription="s", subType=sub_type, consumer_id=1, request_id=1)
        consumer = await subscribe_non_persistent(self, connection, request)
        handlers.handle_flow(connection, 1, 5000)
        return consumer

    def publish(self, *keys):
        for key in keys:
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
            for subscription in self.subscriptions.values():
                subscription.dispatch([encode_entry(metadata, key.encode())])


def run(scenario, **config):
    async def on_node(node):
        topic = Topic(node.runtime, **config)
        connection = RecordingConnection(topic)
        await scenario(topic, connection)
        await topic.pool.close()

    async def main(world):
        await world.node("broker").run(on_node)

    sim.run(main, 0)


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
def test_what_is_accepted_is_sent_in_order_and_nothing_else(sub_type):
    async def scenario(topic, connection):
        topic.processes.delay_s = 0.1
        await topic.join(connection, sub_type)
        topic.publish("a1", "r1", "a2", "p1", "a3")
        await settle(0.05)
        topic.publish("a4")
        await settle(1)
        assert connection.texts() == ["a1", "a2", "a3", "a4"]
        stats = subscription_counts(topic.subscriptions["s"])
        counts = [stats[f"filter{what}MsgCount"] for what in ("Processed", "Accepted", "Rejected", "Rescheduled")]
        assert counts == [6, 4, 1, 1]
        assert topic.subscriptions["s"].messages_dropped == 0

    run(scenario)


def test_while_filters_fail_everything_is_dropped_and_told():
    async def scenario(topic, connection):
        topic.processes.stalled.add("f")
        await topic.join(connection)
        topic.publish("a1")
        await settle(0.5)
        topic.publish("a2")
        await settle(1)
        topic.publish("a3")
        subscription = topic.subscriptions["s"]
        assert (connection.texts(), subscription.messages_dropped) == ([], 3)
        told = {"filters": "f", "error": "they took longer than 1000 ms for a batch", "isHeld": True}
        assert subscription_counts(subscription)["filterFailure"] == told
        topic.processes.stalled.clear()
        await settle(1)
        topic.publish("a4", "r4")
        await settle()
        assert connection.texts() == ["a4"]

    run(scenario)


def test_no_more_waits_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(passing, "WAITING_ENTRIES", 2)

    async def scenario(topic, connection):
        topic.processes.delay_s = 0.1
        await topic.join(connection)
        topic.publish("a1", "a2", "a3", "a4", "a5")
        await settle(1)
        assert connection.texts() == ["a1", "a2", "a3"]
        assert topic.subscriptions["s"].messages_dropped == 2

    run(scenario)


def test_without_consumers_nobody_is_asked_and_other_filters_hold_at_once():
    async def scenario(topic, connection):
        await topic.join(connection)
        topic.publish("r1")
        await settle()
        topic.filters = None
        topic.publish("r2")
        assert connection.texts() == ["r2"]
        topic.filters = TopicFilters(("f",), topic.pool)
        topic.publish("r3", "a3")
        await settle()
        assert connection.texts() == ["r2", "a3"]
        batches = topic.pool.batches
        topic.processes.delay_s = 0.1
        topic.publish("a4")
        await topic.subscriptions["s"].close()
        topic.publish("a5")
        await settle(1)
        assert connection.texts() == ["r2", "a3"]
        assert topic.pool.batches == batches + 1

    run(scenario)


def test_what_nobody_is_asked_about_is_counted_and_nothing_is_overtaken():
    async def scenario(topic, connection):
        consumer = await topic.join(connection)
        subscription = topic.subscriptions["s"]
        topic.processes.delay_s = 0.1
        topic.publish("a1", "a2")
        # Without filters what they were not done with is not sent behind what comes now.
        topic.filters = None
        topic.publish("a3")
        await settle(1)
        assert (connection.texts(), subscription.messages_dropped) == (["a3"], 2)
        topic.filters = TopicFilters(("f",), topic.pool)
        topic.publish("a4", "a5", "a6")
        consumer.close()
        topic.publish("a7")
        await settle(1)
        assert (connection.texts(), subscription.messages_dropped) == (["a3"], 6)

    run(scenario)
