"""The topic that a visitor names."""

from __future__ import annotations

import pytest

from geminga.admin import AdminClient
from geminga.app.console.reading.choosing import PARTITIONS_SHOWN_MAX, ChosenTopic, chosen_topic, topic_named
from geminga.app.console.tables import Refusal
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.handles_world import sim_admin
from support.worlds.rest_world import rest_application

ORDERS = "persistent://public/default/orders"


def test_partitions_around_the_one_that_is_shown_are_told() -> None:
    async def main(world: BrokerWorld) -> None:
        admin: AdminClient = sim_admin(rest_application(world.broker))
        await admin.topics.create("alone")
        assert await chosen_topic(admin, " alone ") == ChosenTopic(
            "persistent://public/default/alone", "persistent://public/default/alone", [], 0
        )
        await admin.topics.create_partitioned("orders", 2)
        few = [f"{ORDERS}-partition-{number}" for number in range(2)]
        assert await chosen_topic(admin, "orders") == ChosenTopic(ORDERS, few[0], few, 2)
        assert await chosen_topic(admin, few[1]) == ChosenTopic(ORDERS, few[1], few, 2)
        many = PARTITIONS_SHOWN_MAX + 30
        await admin.topics.create_partitioned("many", many)
        for number, first in ((0, 0), (40, 15), (many - 1, many - PARTITIONS_SHOWN_MAX)):
            found = await chosen_topic(admin, f"many-partition-{number}")
            numbers = [int(each.rpartition("-")[2]) for each in found.partitions]
            assert numbers == list(range(first, first + PARTITIONS_SHOWN_MAX))
            assert (found.partition_count, found.shown in found.partitions) == (many, True)

    run_with_broker(main)


def test_name_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(Refusal) as refusal:
        topic_named("a://b")
    assert refusal.value.sentence.startswith("“a://b” is no name of a topic: ")
