"""Which entry filters a topic has: the broker's, or those of its policies."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.broker.composition.late_filters import LateFilters
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.core.delivery_rows import ENTRY_FILTERS
from geminga.broker.policies.rules import TopicRules
from geminga.model import TopicName
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.policy_levels import run_quietly, topic_of

TOPIC = TopicName.parse("persistent://a/b/c")


def filters_of(rules, *, before=None, check=None, **config):
    """The names of a topic's filters, or None."""
    found = []

    async def main(world):
        async def on_node(node):
            filters = LateFilters(node.runtime, BrokerConfig(**config), None)
            filters.launch = SimulatedProcesses({})
            made = filters.of(TOPIC, TopicRules(rules), None)
            found.append(None if made is None else made.names)
            if check is not None:
                check(filters, made)
            await filters.close()
            assert filters.of(TOPIC, TopicRules(rules), None) is None

        await world.node("broker").run(on_node)

    sim.run(main, 0)
    return found[0]


@pytest.mark.parametrize(
    ("of_broker", "of_topic", "may_override", "names"),
    [
        ((), None, False, None),
        (("a", "b"), None, False, ("a", "b")),
        (("a",), "t", False, ("a",)),
        ((), "t", False, None),
        ((), "t, u", True, ("t", "u")),
        (("a",), "t", True, ("t",)),
    ],
)
def test_policies_count_where_the_broker_lets_them(of_broker, of_topic, may_override, names):
    rules = {} if of_topic is None else {ENTRY_FILTERS: of_topic}
    found = filters_of(rules, entry_filter_names=of_broker, allow_override_entry_filters=may_override)
    assert found == names


def test_the_brokers_own_hold_where_policies_name_none():
    # What holds of all levels is what the broker says then.
    rules = {ENTRY_FILTERS: "a"}
    assert filters_of(rules, entry_filter_names=("a",), allow_override_entry_filters=True) == ("a",)


def test_filters_stay_the_same_while_their_names_do():
    def check(filters, made):
        assert filters.of(TOPIC, TopicRules(), made) is made

    filters_of({}, check=check, entry_filter_names=("a",))


def test_a_policy_that_does_not_hold_is_told(caplog):
    assert filters_of({ENTRY_FILTERS: "t"}) is None
    assert "its policy 't' of entry filters does not hold: allowOverrideEntryFilters is false" in caplog.text


def test_nothing_is_made_for_topics_without_filters():
    def check(filters, made):
        assert filters.pool is None

    filters_of({}, check=check)


def test_filters_of_the_broker_change_at_run_time():
    async def scenario(world):
        topic = await topic_of(world)
        assert topic.filters is None
        object.__setattr__(world.config, "entry_filter_names", ("a",))
        await world.broker.settings_changed()
        assert topic.filters.names == ("a",)
        object.__setattr__(world.config, "entry_filter_names", ())
        await world.broker.settings_changed()
        assert topic.filters is None

    run_quietly(scenario)
