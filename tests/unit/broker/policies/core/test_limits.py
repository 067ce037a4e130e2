"""Limits of topics and namespaces: what is refused, in whose words, and what holds where nothing is set."""

from __future__ import annotations

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.core import limit_rows as limits
from geminga.broker.policies.core.row import PolicyRow
from geminga.broker.policies.rules import broker_levels
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import PreconditionFailedError

NUMBERS = [row for row in limits.ROWS if row.read is limits.count_of]


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.name)
def test_limit_is_a_number_from_0_on_at_every_level(row: PolicyRow[int]) -> None:
    levels = [level.rest for level in (row.namespace, row.topic) if level is not None and level.rest is not None]
    assert levels
    for rest in levels:
        check = rest.check or row.check
        assert check(0) == 0
        assert check(7) == 7
        with pytest.raises(PreconditionFailedError, match=r"must be|Invalid value"):
            check(-1)
    assert row.value_of([None, 7, 9]) == 7
    assert row.value_of([0, 7]) == 0, "no limit is a limit of its own"
    assert row.value_of([None, None]) == row.otherwise


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.name)
def test_brokers_level_is_what_its_configuration_says(row: PolicyRow[int]) -> None:
    settings = {**broker_levels(ManagedLedgerConfig()), **broker_levels(BrokerConfig())}
    assert row.value_of([row.broker_level(settings)]) == row.otherwise
    for key in row.keys:
        assert row.broker_level({**settings, key: 12345}) == 12345


def test_topic_takes_no_larger_messages_than_its_broker() -> None:
    bound = limits.MAX_MESSAGE_SIZE.bound
    assert bound is not None
    bound(100, {"maxMessageSize": 100})
    with pytest.raises(PreconditionFailedError, match="must be smaller than that in the broker-level"):
        bound(101, {"maxMessageSize": 100})


def test_topics_are_made_as_the_broker_says_but_for_the_members_that_a_namespace_sets() -> None:
    row = limits.AUTO_TOPIC_CREATION
    keys = ("allowAutoTopicCreation", "allowAutoTopicCreationType", "defaultNumPartitions")
    of_broker = row.broker_level(dict(zip(keys, (True, "partitioned", 4), strict=True)))
    made = row.value_of([None, of_broker])
    assert (made.is_allowed, made.partitions) == (True, 4)
    assert not row.value_of([{"allowAutoTopicCreation": False}, of_broker]).is_allowed
