"""Which topics a path means, and deleting a namespace with all of them."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.broker.rest.calls import targets
from geminga.broker.rest.calls.targets import partitions_or_self, persistent_topic, refuse_partitioned, subscription_of
from geminga.broker.rest.namespace_routes.deletion import (
    delete_namespace_and_topics,
    partitioned_topics_of_namespace,
    topics_of_namespace,
)
from geminga.model.errors import NotAllowedError, NotFoundError, SubscriptionNotFoundError, TopicNotFoundError
from geminga.model.topic_name import TopicName

pytestmark = pytest.mark.integration


@pytest.fixture
def on_loop(broker):
    """Runs ``main(broker)`` on the broker's own loop."""

    def run(main):
        return asyncio.run_coroutine_threadsafe(main(broker._broker()), broker._loop).result(30)

    return run


def test_partitioned_topic_means_its_partitions(on_loop, namespace: str) -> None:
    name = TopicName.parse(f"persistent://{namespace}/p")

    async def main(broker) -> None:
        assert [each async for each in partitions_or_self(broker.administered, name)] == [name]
        await broker.partitions.create(name, 2)
        partitions = [name.with_partition(0), name.with_partition(1)]
        assert [each async for each in partitions_or_self(broker.administered, name)] == partitions
        assert [each async for each in partitions_or_self(broker.administered, partitions[1])] == [partitions[1]]
        await refuse_partitioned(broker.administered, partitions[1], "this")
        with pytest.raises(NotAllowedError, match=r"^this$"):
            await refuse_partitioned(broker.administered, name, "this")

    on_loop(main)


def test_topic_and_subscription_must_exist(on_loop, namespace: str) -> None:
    name = TopicName.parse(f"persistent://{namespace}/t")

    async def main(broker) -> None:
        with pytest.raises(TopicNotFoundError):
            await persistent_topic(broker.administered, name)
        await broker.registry.create(name)
        with pytest.raises(SubscriptionNotFoundError):
            await subscription_of(broker.administered, name, "s")

    on_loop(main)


def test_namespace_is_deleted_with_everything_and_a_second_call_finishes_the_first(on_loop, namespace: str) -> None:
    async def main(broker) -> None:
        await broker.registry.create(TopicName.parse(f"persistent://{namespace}/t"))
        await broker.partitions.create(TopicName.parse(f"non-persistent://{namespace}/n"), 2)
        assert len(await topics_of_namespace(broker.administered, namespace)) == 3
        assert len(await partitioned_topics_of_namespace(broker.administered, namespace)) == 1
        # As left behind by a deletion that was cut short.
        await broker.resources.namespaces.set_policy(namespace, "deleted", True)
        await delete_namespace_and_topics(broker.administered, namespace)
        assert await broker.resources.namespaces.find(namespace) is None
        assert await broker.ledgers.encoded_names(f"{namespace}/persistent") == []
        with pytest.raises(NotFoundError):
            await delete_namespace_and_topics(broker.administered, namespace)

    on_loop(main)


def test_more_names_than_are_encoded_at_a_time_are_one_list(on_loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "NAMES_PER_STEP", 2)

    async def main(broker) -> None:
        for count in (0, 1, 2, 7):
            names = [f'name "{number}"' for number in range(count)]
            assert json.loads((await targets.names_response(broker.administered, names)).body) == names

    on_loop(main)
