"""Resource groups by REST, and what they do to the topics of their namespaces."""

from __future__ import annotations

import json

import pytest

from geminga.broker.composition.late_groups import LateGroups
from geminga.broker.composition.metrics import Metrics
from geminga.broker.core.rate_limit import Rate
from geminga.broker.resources.resource_groups import LIMITS, checked_limits
from geminga.broker.statistics.topics import TopicStatistics
from geminga.runtime import Turns
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly, seconds, topic_of
from support.worlds.rest_world import ask, rest_application

Type = pb.BaseCommand
GROUPS = "/admin/v2/resourcegroups"
NAMESPACE = "/admin/v2/namespaces/public/default/resourcegroup"


def test_a_group_is_made_changed_used_and_deleted() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)

        async def said(method: str, path: str, body: object = None) -> tuple[int, object]:
            content = b"" if body is None else json.dumps(body).encode()
            answer = await ask(application, method, path, content)
            return answer.status, json.loads(answer.body) if answer.body else None

        none = dict.fromkeys(LIMITS, -1)
        assert await said("GET", GROUPS) == (200, [])
        assert await said("PUT", f"{GROUPS}/g", {"publishRateInMsgs": 100, "unknown": 1}) == (204, None)
        more = {"dispatchRateInBytes": 5000, "publishRateInBytes": None}
        assert await said("PUT", f"{GROUPS}/g", more) == (204, None)
        assert await said("GET", GROUPS) == (200, ["g"])
        expected = {**none, "publishRateInMsgs": 100, "dispatchRateInBytes": 5000}
        assert await said("GET", f"{GROUPS}/g") == (200, expected)
        status, told = await said("POST", f"{NAMESPACE}/absent")
        assert (status, told["reason"]) == (412, "ResourceGroup does not exist")
        assert await said("POST", f"{NAMESPACE}/g") == (204, None)
        told_of = await ask(application, "GET", NAMESPACE, b"")
        assert (told_of.status, told_of.body) == (200, b"g")  # Java's admin client takes quotes for a part of the name
        status, told = await said("DELETE", f"{GROUPS}/g")
        assert (status, told["reason"]) == (412, "ResourceGroup is in use")
        assert await said("DELETE", NAMESPACE) == (204, None)
        assert await said("DELETE", f"{GROUPS}/g") == (204, None)
        status, told = await said("DELETE", f"{GROUPS}/g")
        assert (status, told["reason"]) == (404, "ResourceGroup does not exist")
        assert (await said("PUT", f"{GROUPS}/g"))[0] == 400

    run_quietly(scenario)


def test_topics_of_a_namespace_are_held_to_the_limits_of_its_group() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        topic = await topic_of(world)
        assert topic.throttles.publish == ()
        assert world.broker.groups.groups is None
        await ask(application, "PUT", f"{GROUPS}/g", b'{"publishRateInMsgs": 7, "dispatchRateInMsgs": 3}')
        await ask(application, "POST", f"{NAMESPACE}/g", b"")
        (publish,), (dispatch,) = topic.throttles.publish, topic.throttles.dispatch
        assert (publish.rate, dispatch.rate, dispatch.level) == (Rate(7, 0), Rate(3, 0), "ResourceGroup")
        text = Metrics(world.broker, TopicStatistics(world.broker.runtime.clock, world.broker), cluster="c").text()
        labels = 'resource_group="g",monitoring_class="Publish"'
        assert f'pulsar_resource_group_calculated_messages_quota{{cluster="c",{labels}}} 7' in text
        assert f'pulsar_resource_group_messages_used{{cluster="c",{labels}}} 0' in text
        await ask(application, "DELETE", NAMESPACE, b"")
        assert (topic.throttles.publish, topic.throttles.dispatch) == ((), ())

    run_quietly(scenario)


def test_a_group_holds_what_subscriptions_are_sent_and_says_so() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await ask(application, "PUT", f"{GROUPS}/g", b'{"dispatchRateInMsgs": 3}')
        await ask(application, "POST", f"{NAMESPACE}/g", b"")
        publisher, consumer = await world.client(), await world.client()
        await publisher.create_producer()
        for number in range(12):
            publisher.send_message(number)
            await publisher.receipt()
        await consumer.subscribe()
        await seconds(2)
        came = sum(command.type == Type.MESSAGE for command, _ in consumer.received)
        assert 6 <= came <= 10, "one period at once, then evenly"
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
        told = await statistics.of_topic(await topic_of(world), Turns(world.broker.runtime.clock))
        assert told["subscriptions"]["sub"]["heldByRate"] == "ResourceGroup"

    run_quietly(scenario)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (3, "the body"),
        ({"publishRateInMsgs": "x"}, "publishRateInMsgs must be a whole number up to 2147483647"),
        ({"publishRateInMsgs": 1 << 31}, "publishRateInMsgs must be a whole number"),
        ({"dispatchRateInBytes": True}, "dispatchRateInBytes must be a whole number"),
        ({"replicationDispatchRateInMsgs": "5"}, "replicationDispatchRateInMsgs must be a whole number"),
    ],
)
def test_what_is_no_limit_is_refused(value, told) -> None:
    with pytest.raises(Exception, match=told):
        checked_limits(value)


def test_no_limit_is_taken_as_it_is() -> None:
    copied = {"replicationDispatchRateInMsgs": -1, "replicationDispatchRateInBytes": 1 << 40}
    assert checked_limits({**copied, "publishRateInMsgs": None}) == copied
    assert checked_limits({"publishRateInMsgs": -1}) == {"publishRateInMsgs": -1}
    assert LateGroups.__slots__
