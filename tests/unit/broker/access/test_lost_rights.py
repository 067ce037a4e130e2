"""Permissions given and taken by REST: what they let in, and who is sent away by them, at once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import ASGIApp

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.ports import Access
from geminga.runtime import next_turn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.deciding import TakenAtTheirWord
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker
from support.worlds.rest_world import Answer, ask, rest_application

ACCESS = Access(authenticator=TakenAtTheirWord(), authorizer=ANONYMOUS_MAY)
NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"
PATHS = {
    TOPIC: "/admin/v2/persistent/public/default/t",
    "non-persistent://public/default/t": "/admin/v2/non-persistent/public/default/t",
}

Scenario = Callable[["Story"], Awaitable[None]]


class Story:
    """A broker, and an operator who may do everything."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.application: ASGIApp = rest_application(world.broker)

    async def do(self, method: str, path: str, body: object = None, *, status: int = 204) -> Answer:
        answer = await ask(
            self.application, method, path, b"" if body is None else json.dumps(body).encode(), role="root"
        )
        assert answer.status == status, answer
        return answer

    async def read(self, path: str) -> object:
        return json.loads((await self.do("GET", path, status=200)).body)

    async def grant(self, role: str, *actions: str, at: str = NAMESPACE) -> None:
        await self.do("POST", f"{at}/permissions/{role}", actions)

    async def revoke(self, role: str, at: str = NAMESPACE) -> None:
        await self.do("DELETE", f"{at}/permissions/{role}")

    async def producer(self, role: str, topic: str = TOPIC) -> Client:
        client = await self.world.client(role)
        await client.create_producer(topic, producer_name=role)
        return client

    async def consumer(self, role: str, topic: str = TOPIC, subscription: str = "sub") -> Client:
        client = await self.world.client(role)
        await client.subscribe(topic, subscription=subscription, subType=pb.CommandSubscribe.Shared)
        return client


def tell(scenario: Scenario, **settings: object) -> None:
    async def run(world: BrokerWorld) -> None:
        await scenario(Story(world))

    run_with_broker(run, access=ACCESS, authorization_enabled=True, super_user_roles=("root",), **settings)


def was_sent(client: Client, kind: int) -> bool:
    return any(command.type == kind for command, _ in client.received)


async def refusal(client: Client) -> str:
    error = await client.error()
    assert error.error == pb.AuthorizationError
    return error.message


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
        assert story.world.broker.lost_rights.sent_away == 2

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


def test_several_topics_are_granted_and_revoked_in_one_change() -> None:
    async def scenario(story: Story) -> None:
        names = ["persistent://public/default/a", "non-persistent://public/default/b"]
        for name in names:
            await (await story.producer("root", name)).close_producer()
        before = (await story.world.resources.namespaces.get("public/default")).version
        items = [{"topic": name, "role": "jane", "actions": ["produce"]} for name in names]
        await story.do("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", items)
        assert (await story.world.resources.namespaces.get("public/default")).version == before + 1
        cooks = [await story.producer("jane", name) for name in names]
        await story.do("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", items)
        assert all(was_sent(cook, Type.CLOSE_PRODUCER) for cook in cooks)

    tell(scenario)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (None, 400, "the body must be a list of topics, each with topic and role"),
        ([], 400, "the body must be a list of topics, each with topic and role"),
        ([{"topic": "persistent://a/b/c"}, {"topic": "persistent://a/d/c"}], 400, "The namespace should be the same"),
        ([{"topic": TOPIC, "role": "jane", "actions": ["fly"]}], 400, "not fly"),
        ([{"topic": TOPIC, "role": "jane"}], 400, "Actions should not be null"),
        ([{"topic": TOPIC, "actions": ["produce"]}], 400, "role"),
        ([{"topic": TOPIC, "role": "jane", "actions": ["produce"]}], 404, f"Topic {TOPIC} not found"),
    ],
)
def test_grant_at_several_topics_says_what_is_wrong_with_it(body: object, status: int, reason: str) -> None:
    async def scenario(story: Story) -> None:
        answer = await story.do("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", body, status=status)
        assert reason in answer.reason

    tell(scenario)


def test_grant_at_a_topic_that_is_not_there_is_refused_unless_configured() -> None:
    async def scenario(story: Story) -> None:
        answer = await story.do("POST", f"{PATHS[TOPIC]}/permissions/jane", ["produce"], status=404)
        assert answer.reason == f"Topic {TOPIC} not found"

    async def allowed(story: Story) -> None:
        await story.grant("jane", "produce", at=PATHS[TOPIC])
        await story.producer("jane")

    tell(scenario)
    tell(allowed, acl_changes_without_topics=True)


def test_grants_are_stored_as_pulsar_stores_them() -> None:
    async def scenario(story: Story) -> None:
        await (await story.producer("root")).close_producer()
        await story.grant("jane", "produce", "consume")
        await story.grant("jim", "consume", at=PATHS[TOPIC])
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jim", "jane", "jim"])
        document = (await story.world.resources.namespaces.get("public/default")).document
        assert document["auth_policies"] == {
            "namespace_auth": {"jane": ["produce", "consume"]},
            "destination_auth": {TOPIC: {"jim": ["consume"]}},
            "subscription_auth_roles": {"sub": ["jim", "jane"]},
        }
        assert await story.read(f"{PATHS[TOPIC]}/permissions") == {"jane": ["produce", "consume"], "jim": ["consume"]}

    tell(scenario)
