"""Who loses a right in use is sent away at once, and nobody else: by permissions, policies, tenants and settings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from geminga.broker.access import lost_rights
from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.grants import without_grant
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.lost_rights import MADE_MEANWHILE_S, UNKNOWN_S, HeldConsumer, HeldWatch, LostRights
from geminga.broker.access.ports import Decision, Denied
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import GemingaError, MetadataError
from geminga.model.topic_name import TopicName
from geminga.runtime import delay, next_turn
from geminga.sim import SimWorld, run
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import Type
from support.worlds.rest_world import ask
from support.worlds.rights_world import ACCESS, NAMESPACE, PATHS, TOPIC, Story, refusal, tell, was_sent


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
        for subscription in ("sub", " "):
            with pytest.raises(AssertionError, match="jane is not among the roles"):
                await story.consumer("jane", subscription=subscription)
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jane"])
        await story.consumer("jane")
        # A reader has a subscription, too, and one over a WebSocket may be made with the broker's own credentials.
        for path in ("reader/persistent/public/default/t", "consumer/persistent/public/default/t/mine"):
            answer = await ask(story.application, "GET", f"/ws/v2/{path}", b"", role="jane")
            assert "jane is not among the roles" in answer.reason

    tell(scenario, subscription_roles_required=True)


def test_reader_over_a_web_socket_is_let_in_by_a_prefix_as_a_live_tail_is() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        await (await story.producer("root")).close_producer()
        await story.do("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
        answer = await ask(story.application, "GET", "/ws/v2/reader/persistent/public/default/t", b"", role="jane")
        assert "WebSockets are not served" in answer.reason

    tell(scenario)


def test_what_is_being_made_when_the_right_goes_is_sent_away_too() -> None:
    """The answer was given before, and the producer is there after the revoke was answered."""

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        jane = await story.world.client("jane")
        # The question is settled within the first turns; the topic is still being made.
        jane.request_producer()
        connection = jane.connection
        while not connection.members.requests:
            await next_turn()
        await story.revoke("jane")
        await jane.expect(Type.CLOSE_PRODUCER)
        assert not connection.members.producers

    tell(scenario)


@pytest.mark.parametrize(
    ("topic", "name"), [(TOPIC, "pulsar.repl.east-->here"), ("persistent://public/default/__change_events", "p")]
)
def test_right_that_goes_while_it_is_asked_who_the_broker_itself_is_is_gone(topic: str, name: str) -> None:
    """Whether somebody is what the brokers are takes a while; what else was answered by then may be old."""

    async def own_role() -> str:
        await delay(1000)
        return "jane"

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        jane = await story.world.client("jane")
        jane.request_producer(topic, producer_name=name)
        await delay(500)
        await story.revoke("jane")
        await delay(5000)
        assert not jane.connection.members.producers
        assert await refusal(jane) == "Client is not authorized to produce"
        await story.grant("jane", "produce")
        await jane.create_producer(topic, producer_name=name, producer_id=2)

    tell(scenario, replace(ACCESS, own_role=own_role))


def test_change_of_another_broker_sends_away_within_three_seconds() -> None:
    """It is heard of by the metadata store's watch."""

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce", "consume")
        cook, eater = await story.producer("jane"), await story.consumer("jane")
        clock = story.world.runtime.clock
        started = clock.monotonic()
        await story.world.resources.namespaces.update("public/default", lambda found: without_grant(found, "jane"))
        await cook.expect(Type.CLOSE_PRODUCER)
        await eater.expect(Type.CLOSE_CONSUMER)
        assert clock.monotonic() - started <= 3

    tell(scenario)


def test_super_user_by_a_setting_that_changes_at_run_time() -> None:
    async def scenario(story: Story) -> None:
        world = story.world
        jane = await world.client("jane")
        jane.request_producer()
        await refusal(jane)
        object.__setattr__(world.broker.config, "super_user_roles", ("root", "jane"))
        await world.broker.settings_changed()
        await jane.create_producer()
        object.__setattr__(world.broker.config, "super_user_roles", ("root",))
        await world.broker.settings_changed()
        assert was_sent(jane, Type.CLOSE_PRODUCER)

    tell(scenario)


def test_producer_that_waits_for_exclusive_access_is_sent_away_too() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        await (await story.world.client("root")).create_producer(TOPIC, producer_access_mode=pb.Exclusive)
        waiting = await story.world.client("jane")
        waiting.request_producer(TOPIC, producer_access_mode=pb.WaitForExclusive)
        answer = (await waiting.expect(Type.PRODUCER_SUCCESS)).producer_success
        assert not answer.producer_ready
        await story.revoke("jane")
        assert not waiting.connection.members.waiting_producers
        assert len(story.world.broker.topics[TOPIC].producers) == 1

    tell(scenario)


@pytest.mark.parametrize("by", ["this broker", "another one"])
def test_watch_of_topics_ends_for_who_may_not_list_them_any_more(by: str) -> None:
    """Also where no topic of the namespace is served here."""

    async def scenario(story: Story) -> None:
        await story.grant("jane", "consume")
        client = await story.world.client("jane")
        request = pb.CommandWatchTopicList(
            namespace="public/default", request_id=1, watcher_id=7, topics_pattern="persistent://public/default/t.*"
        )
        client.send(pb.BaseCommand(type=Type.WATCH_TOPIC_LIST, watchTopicList=request))
        await client.expect(Type.WATCH_TOPIC_LIST_SUCCESS)
        await story.grant("jim", "consume")
        assert list(client.connection.members.watchers) == [7]
        if by == "this broker":
            await story.revoke("jane")
        else:
            await story.world.resources.namespaces.update("public/default", lambda found: without_grant(found, "jane"))
            await delay(3000)
        assert not client.connection.members.watchers
        await story.do("PUT", PATHS[TOPIC])
        await delay(1000)
        assert not was_sent(client, Type.WATCH_TOPIC_UPDATE)

    tell(scenario)


@pytest.mark.parametrize("given", ["roles", "prefix", "setting"])
@pytest.mark.parametrize("path", ["clearBacklog/jane-1", "clearBacklog", "unsubscribe/jane-1"])
def test_who_may_not_use_a_subscription_ends_none_by_the_whole_namespace_either(given: str, path: str) -> None:
    """At the topic each is refused; in the namespace, and in a bundle of it, everybody who may consume was let in."""

    async def scenario(story: Story) -> None:
        for role in ("jane", "jim"):
            await story.grant(role, "consume")
        await (await story.producer("root")).close_producer()
        if given == "roles":
            await story.do("POST", f"{NAMESPACE}/permissions/subscription/jane-1", ["jane"])
        elif given == "prefix":
            await story.do("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
        subscription = f"{PATHS[TOPIC]}/subscription/jane-1"
        await story.do("PUT", subscription, "earliest")
        for where in (NAMESPACE, f"{NAMESPACE}/0x00000000_0xffffffff"):
            assert (await ask(story.application, "POST", f"{where}/{path}", b"", role="jim")).status == 403
        assert "jane-1" in story.world.broker.topics[TOPIC].subscriptions
        await story.do("POST", f"{NAMESPACE}/{path}")
        if given == "setting":
            return
        await story.do("PUT", subscription, "earliest", status=409 if "clear" in path else 204)
        # Who may use it may end it; of those that are named for nobody else's, too.
        allowed = 403 if given == "prefix" and path == "clearBacklog" else 204
        assert (await ask(story.application, "POST", f"{NAMESPACE}/{path}", b"", role="jane")).status == allowed

    tell(scenario, subscription_roles_required=given == "setting")


@pytest.mark.parametrize("given", ["roles", "setting", "prefix"])
def test_who_may_not_use_a_subscription_expires_none_with_all_others_of_the_topic(given: str) -> None:
    async def scenario(story: Story) -> None:
        for role in ("jane", "jim"):
            await story.grant(role, "consume", "produce")
        cook = await story.producer("jane")
        if given == "roles":
            await story.do("POST", f"{NAMESPACE}/permissions/subscription/jane-1", ["jane"])
        elif given == "prefix":
            await story.do("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
        await story.do("PUT", f"{PATHS[TOPIC]}/subscription/jane-1", "earliest")
        await cook.publish(0)
        await delay(2000)
        path = f"{PATHS[TOPIC]}/all_subscription/expireMessages/1"
        answer = await ask(story.application, "POST", path, b"", role="jim")
        assert answer.status == 401
        assert b"not all subscriptions of" in answer.body
        subscription = story.world.broker.topics[TOPIC].subscriptions["jane-1"]
        assert isinstance(subscription, Subscription)
        assert subscription.cursor.backlog_count == 1
        if given == "roles":
            assert (await ask(story.application, "POST", path, b"", role="jane")).status == 204
        else:
            await story.do("POST", path)
        assert subscription.cursor.backlog_count == 0

    tell(scenario, subscription_roles_required=given == "setting")


def test_many_are_asked_about_in_turns_and_all_are_sent_away(monkeypatch) -> None:
    monkeypatch.setattr(lost_rights, "ASKED_PER_TURN", 3)

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        client = await story.world.client("jane")
        for number in range(10):
            await client.create_producer(f"{TOPIC}-{number}", producer_id=number)
        await story.revoke("jane")
        assert not client.connection.members.producers
        assert not any(topic.producers for topic in story.world.broker.topics.values())

    tell(scenario)


class Part:
    name = "test"

    def broke(self, what: str, error: BaseException) -> None:
        raise AssertionError(what) from error


class Held:
    """A producer."""

    def __init__(self) -> None:
        self.topic = SimpleNamespace(name=TopicName.parse(TOPIC))
        self.copies_from = None
        self.is_closed = False

    def disconnect(self) -> None:
        self.is_closed = True


class Connected:
    """A connection with one, and what is being made."""

    def __init__(self, *held: Held) -> None:
        self.principal = Principal("jane")
        self.producers = dict(enumerate(held))
        self.waiting_producers: dict[int, Held] = {}
        self.consumers: dict[int, HeldConsumer] = {}
        self.watchers: dict[int, HeldWatch] = {}
        self.requests: dict[tuple[int, int], int] = {}

    @property
    def members(self) -> Connected:
        return self


class Answers:
    """An authorizer that says one thing after the other; an error is raised by the coroutine."""

    def __init__(self, *answers: Decision | GemingaError) -> None:
        self.answers = list(answers)

    def decide(self, principal: Principal, action: Action, resource: Resource):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return self._fail(answer) if isinstance(answer, GemingaError) else answer

    async def _fail(self, error: GemingaError) -> Decision:
        raise error


def test_who_is_not_known_to_have_lost_it_stays_and_is_asked_about_again() -> None:
    async def main(world: SimWorld) -> None:
        held = Held()
        answers = Answers(MetadataError("gone"), MetadataError("gone"), Denied())
        rights = LostRights(answers, lambda: [Connected(held)], Part())
        await rights.look("public/default")
        assert not held.is_closed
        await delay(int(UNKNOWN_S * 1000) + 10)
        assert not held.is_closed
        await delay(int(UNKNOWN_S * 1000) + 10)
        assert held.is_closed
        assert rights.sent_away == 1
        rights.close()

    run(main)


def test_what_is_made_slowly_is_looked_for_until_it_is_there() -> None:
    async def main(world: SimWorld) -> None:
        held, connection = Held(), Connected()
        connection.requests[5, 1] = 7
        rights = LostRights(Answers(Denied()), lambda: [connection], Part())
        await rights.look("public/default")
        await delay(int(MADE_MEANWHILE_S * 1000) * 5)
        # Only now it is there, on an answer that was given before.
        connection.requests.clear()
        connection.producers[1] = held
        await delay(int(MADE_MEANWHILE_S * 1000) + 10)
        assert held.is_closed
        # And nobody looks any more.
        assert not rights._timers

    run(main)


def test_broker_that_closes_looks_no_more() -> None:
    async def main(world: SimWorld) -> None:
        held, connection = Held(), Connected()
        connection.requests[5, 1] = 7
        rights = LostRights(Answers(Denied()), lambda: [connection], Part())
        await rights.look("public/default")
        rights.close()
        connection.producers[1] = held
        await delay(5000)
        assert not held.is_closed

    run(main)


def test_log_names_who_is_sent_away_as_the_setting_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        cook = await story.producer("jane")
        await story.revoke("jane")
        assert was_sent(cook, Type.CLOSE_PRODUCER)

    tell(scenario, role_anonymizer="REDACTED")
    (line,) = [text for record in caplog.records if "sent away" in (text := record.getMessage())]
    assert line.startswith("[REDACTED] may not produce")
    assert "jane" not in line
