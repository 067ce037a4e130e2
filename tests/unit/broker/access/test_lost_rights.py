"""Who loses a right in use is sent away at once, and nobody else: by permissions, policies, tenants and settings."""

from __future__ import annotations

import pytest

from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import Type
from support.worlds.rights_world import NAMESPACE, PATHS, TOPIC, Story, refusal, tell, was_sent


@pytest.mark.parametrize("topic", PATHS)
@pytest.mark.parametrize("at_topic", [False, True])
def test_who_loses_a_right_in_use_is_gone_when_revoke_is_answered(topic: str, at_topic: bool) -> None:
    async def scenario(story: Story) -> None:
        await (await story.producer("root", topic)).close_producer()
        at = PATHS[topic] if at_topic else NAMESPACE
        for role in ("jane", "jim"):
            await story.grant(role, "produce", "consume", at=at)
        jane, jim = await story.producer("jane", topic), await story.producer("jim", topic)
        eater, other = await story.consumer("jane", topic), await story.consumer("jim", topic)
        await story.revoke("jane", at)
        assert was_sent(jane, Type.CLOSE_PRODUCER)
        assert was_sent(eater, Type.CLOSE_CONSUMER)
        assert not was_sent(jim, Type.CLOSE_PRODUCER)
        assert not was_sent(other, Type.CLOSE_CONSUMER)
        assert set(story.world.broker.topics[topic].producers) == {"jim"}
        assert not jane.is_closed
        jane.request_producer(topic)
        assert await refusal(jane) == "Client is not authorized to produce"
        assert story.world.broker.authorization.lost_rights.sent_away == 2

    tell(scenario)


def test_who_loses_one_of_two_actions_keeps_the_other() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce", "consume")
        cook, eater = await story.producer("jane"), await story.consumer("jane")
        await story.grant("jane", "consume")
        assert was_sent(cook, Type.CLOSE_PRODUCER)
        assert not was_sent(eater, Type.CLOSE_CONSUMER)

    tell(scenario)


@pytest.mark.parametrize("role", ["root", "owner", "jane", "jim"])
def test_change_of_policy_sends_nobody_away_who_keeps_the_right(role: str) -> None:
    """Those without a grant of their own, too: super-users, administrators, wildcards."""

    async def scenario(story: Story) -> None:
        tenant = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}
        await story.do("POST", "/admin/v2/tenants/public", tenant)
        await story.grant("j*", "produce", "consume")
        cook, eater = await story.producer(role), await story.consumer(role)
        await story.do("POST", f"{NAMESPACE}/messageTTL", 60)
        await story.grant("others", "produce")
        await story.revoke("others")
        await story.do("POST", "/admin/v2/tenants/public", {**tenant, "adminRoles": ["owner", "more"]})
        for path in ("messageTTL", "maxProducersPerTopic"):
            await story.do("DELETE", f"{NAMESPACE}/{path}")
        assert not was_sent(cook, Type.CLOSE_PRODUCER)
        assert not was_sent(eater, Type.CLOSE_CONSUMER)

    tell(scenario, authorization_has_wildcards=True)


def test_administrator_who_is_none_any_more_is_sent_away() -> None:
    async def scenario(story: Story) -> None:
        tenant = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}
        await story.do("POST", "/admin/v2/tenants/public", tenant)
        cook = await story.producer("owner")
        await story.do("POST", "/admin/v2/tenants/public", {**tenant, "adminRoles": []})
        await cook.expect(Type.CLOSE_PRODUCER)

    tell(scenario)


def test_grant_at_a_partitioned_topic_holds_for_partitions_added_later_and_is_taken_from_all() -> None:
    """#16768: revoke was 412 after partitions grew, and the role still produced."""

    async def scenario(story: Story) -> None:
        path = PATHS[TOPIC]
        await story.do("PUT", f"{path}/partitions", 1)
        await story.grant("jane", "produce", at=path)
        await story.grant("jane", "produce", at=f"{path}-partition-0")
        await story.do("POST", f"{path}/partitions", 3)
        cooks = [await story.producer("jane", f"{TOPIC}-partition-{number}") for number in range(3)]
        await story.revoke("jane", path)
        assert all(was_sent(cook, Type.CLOSE_PRODUCER) for cook in cooks)
        for number, cook in enumerate(cooks):
            cook.request_producer(f"{TOPIC}-partition-{number}", producer_id=2)
            await refusal(cook)
        assert await story.read(f"{path}/permissions") == {}
        assert await story.read(f"{path}-partition-0/permissions") == {}

    tell(scenario)


@pytest.mark.parametrize("partitions", [0, 2])
def test_grants_go_with_their_topic(partitions: int) -> None:
    """#11876: those of a deleted topic waited for the next one of that name."""

    async def scenario(story: Story) -> None:
        path, whole = PATHS[TOPIC], f"{PATHS[TOPIC]}/partitions" if partitions else PATHS[TOPIC]
        await story.do("PUT", whole, partitions or None)
        await story.grant("jane", "produce", at=path)
        if partitions:
            await story.grant("jane", "consume", at=f"{path}-partition-1")
        await story.grant("jim", "produce")
        await story.do("DELETE", whole)
        document = (await story.world.resources.namespaces.get("public/default")).document
        assert document["auth_policies"]["destination_auth"] == {}
        await story.do("PUT", whole, partitions or None)
        jane = await story.world.client("jane")
        jane.request_producer(f"{TOPIC}-partition-1" if partitions else TOPIC)
        await refusal(jane)
        # Those of the namespace stay.
        await story.producer("jim", f"{TOPIC}-partition-1" if partitions else TOPIC)

    tell(scenario)


def test_roles_of_a_subscription_keep_others_out_at_once() -> None:
    async def scenario(story: Story) -> None:
        for role in ("jane", "jim"):
            await story.grant(role, "consume")
        # Nobody is named: it is everybody's who may consume, as in Pulsar.
        jane, jim = await story.consumer("jane"), await story.consumer("jim")
        root = await story.consumer("root")
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jane"])
        assert await story.read(f"{NAMESPACE}/permissions/subscription") == {"sub": ["jane"]}
        assert was_sent(jim, Type.CLOSE_CONSUMER)
        assert not was_sent(jane, Type.CLOSE_CONSUMER)
        assert not was_sent(root, Type.CLOSE_CONSUMER)
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription="sub", subType=pb.CommandSubscribe.Shared, consumer_id=2, request_id=9
        )
        jim.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        assert await refusal(jim) == "jim is not among the roles of the subscription sub"
        # Another subscription is not concerned.
        await jim.subscribe(TOPIC, subscription="mine", consumer_id=3)
        await story.do("DELETE", f"{NAMESPACE}/permissions/sub/jane")
        assert await story.read(f"{NAMESPACE}/permissions/subscription") == {}
        await story.do("DELETE", f"{NAMESPACE}/permissions/sub/jane", status=412)

    tell(scenario)


def test_role_of_a_subscription_that_may_not_consume_gets_nothing_by_it() -> None:
    async def scenario(story: Story) -> None:
        await story.producer("root")
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jane"])
        with pytest.raises(AssertionError, match="AuthorizationError"):
            await story.consumer("jane")

    tell(scenario)


def test_prefix_of_subscriptions_is_asked_for_at_once() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        wrong, right = (
            await story.consumer("jane", subscription="mine"),
            await story.consumer("jane", subscription="jane-1"),
        )
        await story.do("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
        assert was_sent(wrong, Type.CLOSE_CONSUMER)
        assert not was_sent(right, Type.CLOSE_CONSUMER)

    tell(scenario)


def test_setting_closes_subscriptions_without_roles() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume", "produce")
        await story.producer("jane")
        with pytest.raises(AssertionError, match="jane is not among the roles"):
            await story.consumer("jane")
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jane"])
        await story.consumer("jane")

    tell(scenario, subscription_roles_required=True)


def test_what_is_being_made_when_the_right_goes_is_sent_away_too() -> None:
    """The answer was given before, and the producer is there after the revoke was answered."""

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        jane = await story.world.client("jane")
        # The question is settled within the first turns; the topic is still being made.
        jane.request_producer()
        connection = jane.connection
        while not connection.requests:
            await next_turn()
        await story.revoke("jane")
        await jane.expect(Type.CLOSE_PRODUCER)
        assert not connection.producers

    tell(scenario)
