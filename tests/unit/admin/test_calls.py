"""Each route that a broker has is a call of the administration client, and each call is a route that it has."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

import geminga.admin
import geminga.admin.blocking
from geminga.admin import (
    _bookies,
    _brokers,
    _client,
    _clusters,
    _compaction,
    _lake,
    _messages,
    _namespace_policies,
    _namespaces,
    _permissions,
    _resources,
    _schemas,
    _subscriptions,
    _tenants,
    _topic_policies,
    _topics,
    _transactions,
    blocking,
    values,
)
from geminga.admin._calling import BlockingPolicy, Request
from geminga.admin._http import JSON
from geminga.admin._paths import namespace, position, subscription, topic
from geminga.admin._request import answer_to
from geminga.admin.blocking import _bookies as _blocking_bookies
from geminga.admin.blocking import _brokers as _blocking_brokers
from geminga.admin.blocking import _client as _blocking_client
from geminga.admin.blocking import _clusters as _blocking_clusters
from geminga.admin.blocking import _compaction as _blocking_compaction
from geminga.admin.blocking import _lake as _blocking_lake
from geminga.admin.blocking import _messages as _blocking_messages
from geminga.admin.blocking import _namespace_policies as _blocking_namespace_policies
from geminga.admin.blocking import _namespaces as _blocking_namespaces
from geminga.admin.blocking import _permissions as _blocking_permissions
from geminga.admin.blocking import _resources as _blocking_resources
from geminga.admin.blocking import _schemas as _blocking_schemas
from geminga.admin.blocking import _subscriptions as _blocking_subscriptions
from geminga.admin.blocking import _tenants as _blocking_tenants
from geminga.admin.blocking import _topic_policies as _blocking_topic_policies
from geminga.admin.blocking import _topics as _blocking_topics
from geminga.admin.blocking import _transactions as _blocking_transactions
from geminga.admin.calls.cluster import BOOKIES, BROKERS, CLUSTERS, RESOURCES, SCHEMAS, TENANTS, TRANSACTIONS
from geminga.admin.calls.namespaces import NAMESPACES, PERMISSIONS
from geminga.admin.calls.nouns import NOUNS, POLICY_SETS
from geminga.admin.calls.policies import NAMESPACE_POLICIES, TOPIC_POLICIES
from geminga.admin.calls.row import WireType
from geminga.admin.calls.topics import COMPACTION, LAKE, MESSAGES, SUBSCRIPTIONS, TOPICS
from geminga.broker.rest.calls.routing import Route, distinct
from geminga.broker.rest.families import all_rows, rows_of
from geminga.model.errors import InvalidTopicNameError
from support.processes.asked_broker import AskedBroker

BLOCKING: Final = (
    _blocking_bookies,
    _blocking_brokers,
    _blocking_clusters,
    _blocking_compaction,
    _blocking_lake,
    _blocking_messages,
    _blocking_namespace_policies,
    _blocking_namespaces,
    _blocking_permissions,
    _blocking_resources,
    _blocking_schemas,
    _blocking_subscriptions,
    _blocking_tenants,
    _blocking_topic_policies,
    _blocking_topics,
    _blocking_transactions,
)
#: Routes that no call has, and why.
NO_CALLS: Final = {
    ("GET", "/metrics"): "a text for Prometheus",
    ("GET", "/status.html"): "a text for load balancers",
    ("POST", "/admin/v3/transactions/standings/{coordinator}"): "brokers ask each other",
    ("GET", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/shadowState"): "brokers ask each other",
    ("PUT", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/shadowState"): "brokers tell each other",
    **{
        (method, "/topics/{domain:domain}/{tenant}/{namespace}/{topic}" + rest): "messages: programs have the client"
        for method, rest in (
            ("POST", "/partitions/{partition}"),
            ("GET", "/tail"),
            ("POST", "/subscriptions/{path_subscription}/consumers"),
            ("DELETE", "/subscriptions/{path_subscription}/consumers/{consumer}"),
            ("POST", "/subscriptions/{path_subscription}/consumers/{consumer}/receive"),
            ("POST", "/subscriptions/{path_subscription}/consumers/{consumer}/acknowledge"),
            ("POST", "/subscriptions/{path_subscription}/consumers/{consumer}/negativeAcknowledge"),
        )
    },
    **{("GET", route.path): "a WebSocket" for route in rows_of("/ws")},
}
SAMPLES: Final = {
    "topic": "persistent://t/n/x",
    "place": "persistent://t/n/x",
    "namespace": "t/n",
    "int": 1,
    "bool": True,
    "str": "some",
    "float": 1.0,
    "Sequence[str]": ["some"],
    "Mapping[str, str]": {"some": "thing"},
    "Mapping[str, Any]": {"some": 1},
    "str | Mapping[str, Any]": "latest",
    "Sequence[Mapping[str, Any]]": [{"some": 1}],
}


def _recorded() -> tuple[geminga.admin.blocking.AdminClient, AskedBroker]:
    client = geminga.admin.blocking.connect()
    recorder = AskedBroker()
    for things in (*NOUNS, *POLICY_SETS):
        getattr(client, things.name)._caller = recorder
    return client, recorder


def _arguments(function: Any) -> Iterator[tuple[inspect.Parameter, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        kind = str(parameter.annotation).removesuffix(" | None")
        yield parameter, SAMPLES.get(parameter.name, SAMPLES[kind])


def _all_called() -> AskedBroker:
    client, recorder = _recorded()
    for noun in NOUNS:
        for call in noun.calls:
            function = getattr(getattr(client, noun.name), call.verb)
            given = list(_arguments(function))
            positional = [value for one, value in given if one.kind is not one.KEYWORD_ONLY]
            function(*positional, **{one.name: value for one, value in given if one.kind is one.KEYWORD_ONLY})
    for policy_set in POLICY_SETS:
        owner = SAMPLES[policy_set.owner]
        for policy in policy_set.policies:
            found: BlockingPolicy[Any] = getattr(getattr(client, policy_set.name), policy.name)
            found.get(owner)
            found.set(owner, SAMPLES["int"])
            if policy.is_removable:
                found.remove(owner)
    return recorder


class _Asked:
    """Takes the place of the threads: what would be asked on them."""

    def __init__(self, recorder: AskedBroker) -> None:
        self._recorder = recorder

    async def ask(self, request: Request[Any]) -> Any:
        return answer_to(self._recorder, request)

    async def close(self) -> None:
        pass


async def _all_awaited() -> AskedBroker:
    recorder = AskedBroker()
    client = _client.AdminClient("http://x", timeout_s=1, headers=None, tls=None)
    for things in (*NOUNS, *POLICY_SETS):
        getattr(client, things.name)._lanes = _Asked(recorder)
    for noun in NOUNS:
        for call in noun.calls:
            function = getattr(getattr(client, noun.name), call.verb)
            given = list(_arguments(function))
            positional = [value for one, value in given if one.kind is not one.KEYWORD_ONLY]
            await function(*positional, **{one.name: value for one, value in given if one.kind is one.KEYWORD_ONLY})
    for policy_set in POLICY_SETS:
        owner = SAMPLES[policy_set.owner]
        for policy in policy_set.policies:
            found = getattr(getattr(client, policy_set.name), policy.name)
            await found.get(owner)
            await found.set(owner, SAMPLES["int"])
            if policy.is_removable:
                await found.remove(owner)
    return recorder


def _routes() -> list[Route]:
    return distinct(all_rows())


def _route_of(method: str, path: str) -> Route | None:
    """The most particular one, as in Pulsar."""
    fitting = [one for one in _routes() if method in (one.methods or ()) and one.path_regex.fullmatch(path)]
    return min(fitting, key=lambda one: one.path.count("{"), default=None)


def test_each_call_is_a_route_and_each_route_a_call() -> None:
    asked = [(one.method, one.path) for one in _all_called().asked]
    found = {one: _route_of(*one) for one in asked}
    assert [one for one, route in found.items() if route is None] == []
    met = {(method, route.path) for (method, _), route in found.items() if route is not None}
    there = {(method, route.path) for route in _routes() for method in (route.methods or ()) if method != "HEAD"}
    assert there - met - NO_CALLS.keys() == set()


def test_what_is_awaited_asks_as_what_blocks() -> None:
    awaited, blocked = asyncio.run(_all_awaited()).asked, _all_called().asked
    assert len(awaited) > 400
    assert awaited == blocked
    assert {one.content_type for one in blocked} == {JSON}


def test_what_stands_in_a_row_stands_in_the_request() -> None:
    client, recorder = _recorded()
    client.topics.delete("orders", force=True)
    client.permissions.grant("public/default", "me", ["produce"])
    client.subscriptions.reset("orders", "a+b/c", "earliest")
    client.topic_policies.message_ttl.set("orders", 5)
    client.namespace_policies.anti_affinity_group.set("public/default", "apart")
    client.tenants.create("new", admin_roles=[], allowed_clusters=["here"])
    client.topics.create("orders")
    assert [(*one[:3], one.body and one.body.decode()) for one in recorder.asked] == [
        ("DELETE", "/admin/v2/persistent/public/default/orders", {"force": True, "deleteSchema": True}, None),
        ("POST", "/admin/v2/namespaces/public/default/permissions/me", {}, '["produce"]'),
        (
            "POST",
            "/admin/v2/persistent/public/default/orders/subscription/a%252Bb%252Fc/resetcursor",
            {},
            json.dumps({"ledgerId": -1, "entryId": -1, "partitionIndex": -1}),
        ),
        ("POST", "/admin/v2/persistent/public/default/orders/messageTTL", {"messageTTL": 5}, None),
        ("POST", "/admin/v2/namespaces/public/default/antiAffinity", {}, "apart"),
        ("PUT", "/admin/v2/tenants/new", {}, '{"adminRoles": [], "allowedClusters": ["here"]}'),
        ("PUT", "/admin/v2/persistent/public/default/orders", {}, None),
    ]


def test_bad_names_are_refused_before_anything_is_sent() -> None:
    client, recorder = _recorded()
    for name in ("default", "a/b/c", "/b", "a/", None, 5):
        with pytest.raises(ValueError, match="tenant/namespace"):
            client.namespaces.bundles(name)
    for name in ("persistent://only/two", "", None, 5):
        with pytest.raises(ValueError, match="topic") as raised:
            client.topics.stats(name)
        assert isinstance(raised.value, InvalidTopicNameError), "what commands and servers know it by"
    with pytest.raises(ValueError, match="latest, earliest or an object"):
        client.subscriptions.create("orders", "s", "newest")
    with pytest.raises(ValueError, match="for topics"):
        client.namespace_policies.retention.get("public/default", applied=True)
    with pytest.raises(ValueError, match="not be removed"):
        client.namespace_policies.replication_clusters.remove("public/default")
    with pytest.raises(ValueError, match="http://host:port"):
        geminga.admin.blocking.connect("localhost:8080")
    assert recorder.asked == []
    assert (topic("non-persistent://a/b/c d"), namespace("a/b"), subscription("s")) == (
        "non-persistent/a/b/c%20d",
        "a/b",
        "s",
    )
    assert position({"ledgerId": 3, "entryId": 4}) == {"ledgerId": 3, "entryId": 4}


def test_asynchronous_and_blocking_calls_are_the_same() -> None:
    modules = [
        _bookies,
        _brokers,
        _clusters,
        _compaction,
        _lake,
        _messages,
        _namespaces,
        _permissions,
        _resources,
        _schemas,
        _subscriptions,
    ]
    modules += [_subscriptions, _tenants, _topics, _transactions]
    rows = [
        BOOKIES,
        BROKERS,
        CLUSTERS,
        COMPACTION,
        LAKE,
        MESSAGES,
        NAMESPACES,
        PERMISSIONS,
        RESOURCES,
        SCHEMAS,
        SUBSCRIPTIONS,
    ]
    rows += [TENANTS, TOPICS, TRANSACTIONS]
    assert {one.__name__.rsplit("._")[-1] for one in modules} == {one.name for one in rows} == {n.name for n in NOUNS}
    for noun in NOUNS:
        one = getattr(_client.AdminClient("http://x", timeout_s=1, headers=None, tls=None), noun.name)
        other = getattr(geminga.admin.blocking.connect(), noun.name)
        for call in noun.calls:
            awaited = getattr(one, call.verb)
            assert inspect.iscoroutinefunction(awaited)
            assert inspect.signature(awaited) == inspect.signature(getattr(other, call.verb))
    kinds = (_topic_policies.TopicPolicies, TOPIC_POLICIES), (_namespace_policies.NamespacePolicies, NAMESPACE_POLICIES)
    for made, policy_set in kinds:
        assert {name for name in vars(made) if not name.startswith("__")} == {row.name for row in policy_set.policies}
    assert {call.answer for noun in NOUNS for call in noun.calls} == {None, *WireType} - {
        WireType.BOOL,
        WireType.FLOAT,
        WireType.POSITION,
    }
    assert Request("GET", "/x").body is None


def test_blocking_modules_are_as_many() -> None:
    assert {one.__name__.rsplit(".")[-1] for one in BLOCKING} == {f"_{noun.name}" for noun in (*NOUNS, *POLICY_SETS)}
    assert values.StoredMessage(b"x", {}).payload == b"x"
    assert blocking.AdminClient is _blocking_client.AdminClient


def test_a_closed_client_says_so() -> None:
    client = geminga.admin.blocking.connect()
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.topics.stats("orders")

    async def closed() -> None:
        async with geminga.admin.connect() as asked:
            pass
        with pytest.raises(ValueError, match="closed"):
            await asked.topics.stats("orders")

    asyncio.run(closed())
