"""The ownership of a broker that is alone."""

from __future__ import annotations

import asyncio

from geminga.broker.ownership.ports import HERE
from geminga.broker.ownership.sole import SoleOwnership
from geminga.model.topic_name import TopicName


def test_every_topic_is_here_also_for_who_was_sent() -> None:
    for name in ("topic", "non-persistent://a/b/c", "topic-partition-7"):
        for is_authoritative in (False, True):
            owner = SoleOwnership().owner_of(TopicName.parse(name), is_authoritative=is_authoritative)
            assert asyncio.run(owner) is HERE
