"""Which topics and subscriptions a path means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response

from geminga.broker.service import Broker
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic import PersistentTopic
from geminga.model.errors import NotAllowedError, SubscriptionNotFoundError
from geminga.model.topic_name import TopicName

#: Names encoded at once.
NAMES_PER_STEP: Final = 2000
#: Partitions of a topic from which on those that nobody used are left out where they have nothing to tell: each would
#: have to be loaded for that.
UNUSED_LOADED_MAX: Final = 1000


async def partitions_or_self(broker: Broker, name: TopicName, *, used: bool = False) -> AsyncIterator[TopicName]:
    """The partitions of a partitioned topic, or the topic itself; in turns of the loop, until the broker stops.

    ``used``: those that nobody ever used have nothing to tell, and are left out where there are many.
    """
    found = None if name.is_partition else await broker.resources.partitioned_topics.find(name)
    if found is None:
        yield name
        return
    steps = broker.admin_steps()
    used = used and found.partitions > UNUSED_LOADED_MAX
    for index in range(found.partitions):
        await steps.next()
        partition = name.with_partition(index)
        if not used or await broker.partitions.is_used(partition):
            yield partition


async def names_response(broker: Broker, names: list[str]) -> Response:
    """Names as a JSON array, encoded in turns of the loop."""
    steps = broker.admin_steps()
    parts = []
    for start in range(0, len(names), NAMES_PER_STEP):
        await steps.next()
        parts.append(json.dumps(names[start : start + NAMES_PER_STEP], separators=(",", ":"))[1:-1])
    return Response(f"[{','.join(parts)}]", media_type="application/json")


async def refuse_partitioned(broker: Broker, name: TopicName, what: str) -> None:
    """Raise :class:`NotAllowedError` (405) if ``name`` is a partitioned topic."""
    if not name.is_partition and await broker.resources.partitioned_topics.find(name) is not None:
        raise NotAllowedError(f"{what} needs one partition: {name} is partitioned")


async def persistent_topic(broker: Broker, name: TopicName) -> PersistentTopic:
    """The loaded topic; raises TopicNotFoundError (404), NotAllowedError (405) for a non-persistent one."""
    topic = await broker.get_topic(name, create=False)
    if not isinstance(topic, PersistentTopic):
        raise NotAllowedError(f"{name} stores no messages")
    return topic


async def subscription_of(broker: Broker, name: TopicName, subscription: str) -> Subscription:
    """The subscription; raises SubscriptionNotFoundError (404) and what :func:`persistent_topic` raises."""
    found = (await persistent_topic(broker, name)).subscriptions.get(subscription)
    if not isinstance(found, Subscription):
        raise SubscriptionNotFoundError(f"topic {name} has no subscription {subscription}")
    return found
