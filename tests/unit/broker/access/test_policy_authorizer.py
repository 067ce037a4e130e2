"""The shell of the rules: what is remembered answers at once, what is not is read, and nothing old is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest

from geminga.broker.access.core.actions import EVERYTHING, SuperUser, TopicOperation, of_topic, writing
from geminga.broker.access.core.actions import PolicyName as Policy
from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.access.core.rules import Rules
from geminga.broker.access.policy_authorizer import NAMESPACES_KEPT_MAX, READS_MAX, PolicyAuthorizer, Stored
from geminga.broker.access.ports import ALLOWED, Decision, Denied
from geminga.broker.core.coercion import Json
from geminga.model.errors import MetadataError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.waiting import turns
from support.worlds.broker_world import Client, Type
from support.worlds.rest_world import ask
from support.worlds.rights_world import ACCESS, Story, refusal, tell, was_sent

TOPIC = of_topic(TopicName.parse("persistent://t/n/a"))
JANE, ROOT, OWNER = Principal("jane"), Principal("root"), Principal("owner")
GRANTED: dict[str, Json] = {"auth_policies": {"namespace_auth": {"jane": ["produce"]}}}


class Documents:
    """Some are remembered, all are there."""

    def __init__(self, documents: Mapping[str, dict[str, Json]], *, known: bool = False) -> None:
        self.documents = dict(documents)
        self.is_known = known
        self.changes = 0
        self.read: list[str] = []
        #: Comes about while it is read.
        self.meanwhile: list[dict[str, dict[str, Json]]] = []

    @property
    def stored(self) -> Stored:
        return Stored(
            lambda name: self.documents.get(name) if self.is_known else None, self._read, lambda: self.changes
        )

    async def _read(self, name: str) -> Mapping[str, Json] | None:
        self.read.append(name)
        found = self.documents.get(name)
        if self.meanwhile:
            self.documents = self.meanwhile.pop(0)
            self.changes += 1
        return found


class Broken(Documents):
    async def _read(self, name: str) -> Mapping[str, Json] | None:
        raise MetadataError("no metadata")


def authorizer(namespaces: Documents, tenants: Documents | None = None) -> PolicyAuthorizer:
    tenants = tenants or Documents({"t": {"adminRoles": ["owner"]}}, known=namespaces.is_known)
    return PolicyAuthorizer(lambda: Rules(frozenset(["root"])), tenants.stored, namespaces.stored)


def settled(answer: Decision | Coroutine[Any, Any, Decision]) -> Decision:
    assert not isinstance(answer, Coroutine), "it is not known at once"
    return answer


def later(answer: Decision | Coroutine[Any, Any, Decision]) -> Decision:
    assert isinstance(answer, Coroutine), "it is known at once"
    return asyncio.run(answer)


def test_what_is_remembered_answers_at_once() -> None:
    namespaces = Documents({"t/n": GRANTED}, known=True)
    decides = authorizer(namespaces)
    assert settled(decides.decide(JANE, TopicOperation.PRODUCE, TOPIC)) is ALLOWED
    assert settled(decides.decide(JANE, TopicOperation.CONSUME, TOPIC)) == Denied()
    assert settled(decides.decide(OWNER, TopicOperation.CONSUME, TOPIC)) is ALLOWED
    # Another document, by another object, is looked at anew.
    namespaces.documents["t/n"] = {"auth_policies": {"namespace_auth": {"jane": ["consume"]}}}
    assert settled(decides.decide(JANE, TopicOperation.PRODUCE, TOPIC)) == Denied()
    assert settled(decides.decide(JANE, TopicOperation.CONSUME, TOPIC)) is ALLOWED
    assert not namespaces.read


def test_what_is_not_remembered_is_read_first() -> None:
    namespaces = Documents({"t/n": GRANTED})
    decides = authorizer(namespaces)
    assert later(decides.decide(JANE, TopicOperation.PRODUCE, TOPIC)) is ALLOWED
    assert later(decides.decide(JANE, TopicOperation.CONSUME, TOPIC)) == Denied()
    assert namespaces.read == ["t/n"] * 2


@pytest.mark.parametrize(("who", "is_allowed"), [(ROOT, True), (ANONYMOUS, False)])
def test_who_is_settled_without_a_look_has_nothing_read(who: Principal, is_allowed: bool) -> None:
    namespaces, tenants = Documents({"t/n": GRANTED}), Documents({})
    decides = authorizer(namespaces, tenants)
    for action, resource in ((TopicOperation.PRODUCE, TOPIC), (SuperUser.LOOK_AT_BROKER, EVERYTHING)):
        assert (settled(decides.decide(who, action, resource)) is ALLOWED) == is_allowed
    assert settled(decides.decide(JANE, SuperUser.LOOK_AT_BROKER, EVERYTHING)) == Denied()
    assert not namespaces.read
    assert not tenants.read


def test_what_only_an_administrator_may_has_no_policies_read() -> None:
    namespaces = Documents({})
    decides = authorizer(namespaces)
    assert later(decides.decide(OWNER, writing(Policy.TTL), TOPIC)) is ALLOWED
    assert later(decides.decide(JANE, writing(Policy.TTL), TOPIC)) == Denied()
    assert not namespaces.read


def test_tenant_or_namespace_that_is_not_there_gives_nobody_anything() -> None:
    decides = authorizer(Documents({}), Documents({}))
    for who in (JANE, OWNER):
        assert later(decides.decide(who, TopicOperation.PRODUCE, TOPIC)) == Denied()


def test_right_that_goes_while_it_is_read_is_not_given() -> None:
    namespaces = Documents({"t/n": GRANTED})
    namespaces.meanwhile = [{"t/n": {}}]
    assert later(authorizer(namespaces).decide(JANE, TopicOperation.PRODUCE, TOPIC)) == Denied()
    tenants = Documents({"t": {"adminRoles": ["owner"]}})
    tenants.meanwhile = [{"t": {"adminRoles": []}}]
    assert later(authorizer(Documents({}), tenants).decide(OWNER, TopicOperation.PRODUCE, TOPIC)) == Denied()


def test_changes_without_an_end_hold_nobody_for_ever() -> None:
    namespaces = Documents({"t/n": GRANTED})
    namespaces.meanwhile = [{"t/n": GRANTED}] * 100
    assert later(authorizer(namespaces).decide(JANE, TopicOperation.PRODUCE, TOPIC)) is ALLOWED
    assert len(namespaces.read) == READS_MAX


def test_error_of_a_read_is_told() -> None:
    with pytest.raises(MetadataError):
        later(authorizer(Broken({})).decide(JANE, TopicOperation.PRODUCE, TOPIC))


def test_rules_in_force_count() -> None:
    now = [Rules()]
    tenants, namespaces = Documents({"t": {}}, known=True), Documents({"t/n": {}}, known=True)
    decides = PolicyAuthorizer(lambda: now[0], tenants.stored, namespaces.stored)
    assert settled(decides.decide(ROOT, TopicOperation.PRODUCE, TOPIC)) == Denied()
    now[0] = Rules(frozenset(["root"]))
    assert settled(decides.decide(ROOT, TopicOperation.PRODUCE, TOPIC)) is ALLOWED


def test_grants_of_so_many_namespaces_are_kept() -> None:
    names = [f"t/{number}" for number in range(NAMESPACES_KEPT_MAX + 10)]
    decides = authorizer(Documents(dict.fromkeys(names, GRANTED), known=True))
    for name in names:
        topic = of_topic(TopicName.parse(f"persistent://{name}/a"))
        assert settled(decides.decide(JANE, TopicOperation.PRODUCE, topic)) is ALLOWED
    assert len(decides._kept) == NAMESPACES_KEPT_MAX


OWN_TOPICS = [
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_segments",
    "__change_events-partition-0",
]


@pytest.mark.parametrize("local_name", OWN_TOPICS)
def test_what_brokers_keep_in_topics_is_nobody_s_who_may_only_produce_and_consume(local_name: str) -> None:
    """A policy is an event in such a topic, and which transactions were aborted: an event sets it, whoever sends it."""
    topic = f"persistent://public/default/{local_name}"

    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", {"adminRoles": ["owner"], "allowedClusters": ["standalone"]})
        for role in ("jane", "copier"):
            await story.grant(role, "produce", "consume")
        jane = await story.world.client("jane")
        jane.request_producer(topic)
        assert "is the brokers' own" in await refusal(jane)
        jane.request_subscribe(topic)
        assert "is the brokers' own" in await refusal(jane)
        path = f"/topics/persistent/public/default/{local_name}"
        body = b'{"messages": [{"value": "x"}]}'
        for where, data in ((f"{path}/messages", body), (f"{path}/subscriptions/s/consumers", b"{}")):
            answer = await ask(story.application, "POST", where, data, role="jane")
            assert answer.status in (401, 404), answer
        for role in ("owner", "root"):
            await story.producer(role, topic)
            await story.consumer(role, topic, subscription=role)
        # Policies for all clusters come by replicators.
        copier = await story.world.client("copier")
        await copier.create_producer(topic, producer_name="pulsar.repl.east-->standalone")
        copier.request_subscribe(topic)
        await refusal(copier)

    tell(scenario, replicator_roles=("copier",))


def test_brokers_of_the_cluster_use_what_they_keep_in_topics_by_their_own_role() -> None:
    """Policies of topics are read and written where the topic is that keeps them: by other brokers as clients."""

    async def own_role() -> str:
        return "broker"

    async def scenario(story: Story) -> None:
        topic = f"persistent://public/default/{OWN_TOPICS[0]}"
        for role in ("broker", "jane"):
            await story.grant(role, "produce", "consume")
        await story.producer("broker", topic)
        await story.consumer("broker", topic)
        jane = await story.world.client("jane")
        jane.request_subscribe(topic)
        assert "is the brokers' own" in await refusal(jane)
        await story.revoke("broker")
        other = await story.world.client("broker")
        other.request_producer(topic, producer_name="more")
        assert await refusal(other) == "Client is not authorized to produce"

    tell(scenario, replace(ACCESS, own_role=own_role))


# ---- who may take a replicator's name

REPLICATOR = "pulsar.repl.east-->standalone"


async def asks(story: Story, role: str, original: str = "", name: str = REPLICATOR) -> Client:
    client = await story.world.client(role, original)
    client.request_producer(producer_name=name)
    return client


async def with_rights(story: Story) -> None:
    """``jane`` may produce, ``owner`` administers the tenant, ``proxy`` may produce for others."""
    tenant = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}
    await story.do("POST", "/admin/v2/tenants/public", tenant)
    for role in ("jane", "copier", "proxy"):
        await story.grant(role, "produce")


@pytest.mark.parametrize("name", [REPLICATOR, "pulsar.repl.", "pulsar.repl.east"])
def test_who_may_produce_is_no_replicator_by_that(name: str) -> None:
    """Positions that he makes up would be believed: what the cluster of that name sends would be lost with receipts."""

    async def scenario(story: Story) -> None:
        await with_rights(story)
        client = await asks(story, "jane", name=name)
        told = await refusal(client)
        assert "jane may not publish under the name of another cluster's replicator (pulsar.repl....)" in told
        assert "gemingaReplicatorRoles" in told
        assert not story.world.broker.topics
        client.request_producer(producer_name="jane")
        await client.expect(Type.PRODUCER_SUCCESS)

    tell(scenario, replicator_roles=("copier",))


@pytest.mark.parametrize(
    ("role", "original"), [("root", ""), ("owner", ""), ("copier", ""), ("proxy", "copier"), ("proxy", "root")]
)
def test_replicators_are_superusers_administrators_and_the_roles_that_are_named(role: str, original: str) -> None:
    async def scenario(story: Story) -> None:
        await with_rights(story)
        await (await asks(story, role, original)).expect(Type.PRODUCER_SUCCESS)

    tell(scenario, replicator_roles=("copier",), access=replace(ACCESS, proxy_roles=frozenset(["proxy"])))


def test_a_proxy_s_own_role_makes_nobody_a_replicator() -> None:
    async def scenario(story: Story) -> None:
        await with_rights(story)
        assert "jane may not" in await refusal(await asks(story, "proxy", "jane"))

    tell(scenario, replicator_roles=("proxy",), access=replace(ACCESS, proxy_roles=frozenset(["proxy"])))


def test_the_broker_s_own_role_replicates_as_far_as_it_is_known() -> None:
    """Clusters that share one role for their brokers need not name it. What can not be known is no refusal."""
    own: list[str] = []

    async def own_role() -> str:
        if not own:
            raise UnavailableError("the issuer is away")
        return own[0]

    async def scenario(story: Story) -> None:
        await with_rights(story)
        error = await (await asks(story, "copier")).error()
        assert (error.error, error.message) == (pb.ServiceNotReady, "the issuer is away")
        own.append("copier")
        await (await asks(story, "copier")).expect(Type.PRODUCER_SUCCESS)
        assert "jane may not" in await refusal(await asks(story, "jane"))
        own[0] = ""
        assert "jane may not" in await refusal(await asks(story, "jane"))

    tell(scenario, access=replace(ACCESS, own_role=own_role))


def test_who_replicates_no_more_is_sent_away_and_keeps_its_own_names() -> None:
    async def scenario(story: Story) -> None:
        await with_rights(story)
        await story.grant("owner", "produce")
        copier = await asks(story, "owner")
        await copier.expect(Type.PRODUCER_SUCCESS)
        await copier.create_producer(producer_id=2, producer_name="owner")
        await story.do("POST", "/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": ["standalone"]})
        closed = (await copier.expect(Type.CLOSE_PRODUCER)).close_producer
        assert closed.producer_id == 1
        await turns()
        assert not was_sent(copier, Type.CLOSE_PRODUCER)
        copier.request_producer(producer_name=REPLICATOR)
        assert "owner may not" in await refusal(copier)

    tell(scenario)
