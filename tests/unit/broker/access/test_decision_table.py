"""Each command and each route, asked for by each kind of principal: allowed or refused as Pulsar 4.2 does, and a
refused one has left nothing but counters.

What is expected is written here once more, from Pulsar's rules and not from ours: by the words of an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.core.actions import Action, Anyone, Resource, TopicOperation, of_namespace, of_topic
from geminga.broker.access.core.grants import grants_of
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.core.rules import Facts, Rules, decide
from geminga.broker.access.ports import Access
from geminga.broker.handlers import ROWS
from geminga.broker.handlers.rows import Asks
from geminga.broker.policies.core.rows import ROWS as POLICIES
from geminga.broker.rest.calls.routing import Route, unbuilt_routes
from geminga.broker.rest.families import all_rows
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.deciding import TakenAtTheirWord
from support.house.signing import OTHER_SECRET, token_of
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, run_with_broker
from support.worlds.rest_world import ask, rest_application
from unit.broker.authentication import test_connections as connections
from unit.broker.handlers import test_rows as commands
from unit.broker.rest.test_doors import action_of, body_of, method_of, path_of


class Who(NamedTuple):
    role: str
    #: For whom a proxy asks.
    original: str = ""


NOBODY = Who("")
#: What each may: words of the table below.
ROLES: dict[str, frozenset[str]] = {
    "stranger": frozenset(),
    "other-admin": frozenset(),
    "eater": frozenset(["consume"]),
    "cook": frozenset(["produce"]),
    "granted": frozenset(["consume", "produce", "consume all", "produce all"]),
    "owner": frozenset(["consume", "produce", "consume all", "produce all", "administer"]),
    "root": frozenset(["consume", "produce", "consume all", "produce all", "administer", "everything"]),
}
PROXIES = ("proxy-root", "proxy-eater")
MAY = {**ROLES, "proxy-root": ROLES["root"], "proxy-eater": ROLES["eater"]}
PRINCIPALS = [
    NOBODY,
    *(Who(role) for role in ROLES),
    *(Who(proxy, role) for proxy in PROXIES for role in ROLES),
    # Who may not speak for others, and proxies that say nothing, or name another one.
    Who("owner", "root"),
    Who("proxy-root"),
    Who("proxy-root", "proxy-eater"),
]

#: Actions by their words -> what one of must be had. What is not here takes a tenant's administrator.
WORDS: dict[str, set[str]] = {
    "TopicOperation LOOKUP|GET_STATS|GET_METADATA": {"produce", "consume"},
    "TopicOperation PRODUCE": {"produce"},
    "TopicOperation GET_SUBSCRIPTIONS|CONSUME|SUBSCRIBE|UNSUBSCRIBE|SKIP|EXPIRE_MESSAGES|PEEK_MESSAGES|RESET_CURSOR"
    "|GET_BACKLOG_SIZE": {"consume"},
    "NamespaceOperation GET_TOPICS|GET_BUNDLE": {"produce all", "consume all"},
    "NamespaceOperation UNSUBSCRIBE|CLEAR_BACKLOG": {"consume all"},
    "ClusterOperation LIST_CLUSTERS": {""},
    "ClusterOperation .*": {"everything"},
    "BrokerOperation .*": {"everything"},
    "SuperUser .*": {"everything"},
    "TenantOperation LIST_TENANTS": {"everything"},
}
#: Kinds of actions that Pulsar answers with 403; 401 to the others.
FORBIDDEN = ("NamespaceOperation", "PolicyAction")


def kind_of(action: Action) -> str:
    return type(action).__name__


def takes(action: Action) -> set[str]:
    if kind_of(action) == "PolicyAction":
        return {"administer"}
    words = f"{kind_of(action)} {action.name}"  # type: ignore[union-attr]
    return next((needs for pattern, needs in WORDS.items() if fits(pattern, words)), {"administer"})


def fits(pattern: str, words: str) -> bool:
    kind, _, names = pattern.partition(" ")
    return re.fullmatch(f"{kind} ({names})", words) is not None


def is_let_in(who: Who) -> bool:
    if who.role in PROXIES:
        return who.original not in ("", *PROXIES)
    return bool(who.role) and who.original in ("", who.role)


def is_allowed(who: Who, action: Action) -> bool:
    needs = takes(action)
    return all(needs & {*MAY[role], ""} for role in (who.role, who.original) if role)


GRANTS = {
    "namespace_auth": {"granted": ["produce", "consume"]},
    "destination_auth": {
        TOPIC: {"eater": ["consume"], "cook": ["produce"], "proxy-eater": ["consume"]},
        commands.OTHER: {"eater": ["consume"], "cook": ["produce"], "proxy-eater": ["consume"]},
    },
    "subscription_auth_roles": {},
}
ACCESS = Access(authenticator=TakenAtTheirWord(), authorizer=ANONYMOUS_MAY, proxy_roles=frozenset(PROXIES))
SETTINGS = {"authorization_enabled": True, "super_user_roles": ("root", "proxy-root")}


async def with_rights(world: BrokerWorld) -> None:
    clusters = {"allowedClusters": ["standalone"]}
    await world.resources.tenants.update("public", {**clusters, "adminRoles": ["owner"]})
    await world.resources.tenants.create("elsewhere", {**clusters, "adminRoles": ["other-admin"]})
    await with_grants(world)


async def with_grants(world: BrokerWorld) -> None:
    await world.resources.namespaces.set_policy("public/default", "auth_policies", GRANTS)
    await world.broker.policies_changed("public/default")


def state(world: BrokerWorld) -> object:
    """All that is stored, and all that is in memory but counters."""
    return (
        world.metadata_nodes(),
        {
            name: (
                id(topic),
                sorted(topic.producers),
                sorted((each.name, len(each.consumers), str(each.cursor.mark_delete_position)) for each in subs),
            )
            for name, topic in world.broker.topics.items()
            for subs in [topic.subscriptions.values()]
        },
    )


BUILT = all_rows()
ROUTES = [*BUILT, *unbuilt_routes()]
BEHIND_THE_DOOR = [route for route in ROUTES if not route.path.startswith(("/metrics", "/status.html"))]


def methods_of(route: Route) -> list[str]:
    return sorted((route.methods or set()) - {"HEAD"})


def refusals(who: Who) -> Iterator[tuple[Route, int]]:
    """Routes that must be refused, and with which status."""
    for route in BEHIND_THE_DOOR:
        if not is_let_in(who):
            yield route, 401
        elif not isinstance(route.needs, Anyone) and not is_allowed(who, action_of(route)):
            yield route, 403 if kind_of(action_of(route)) in FORBIDDEN else 401


def test_refused_request_is_answered_as_in_pulsar_and_leaves_nothing() -> None:
    cells = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal cells
        await with_rights(world)
        client = await settled(world)
        application = rest_application(world.broker)
        before = state(world)
        for who in PRINCIPALS:
            for route, status in refusals(who):
                for method in methods_of(route):
                    answer = await ask(application, method, path_of(route), body_of(route), **who._asdict())
                    assert answer.status == status, (who, route.path, method, answer)
                    cells += 1
            assert state(world) == before, who
        assert not client.is_closed

    run_with_broker(scenario, access=ACCESS, **SETTINGS)
    assert cells > 5000


#: Tokens of super-users that prove nothing: signed by another, or of a time that has passed.
WORTHLESS = {"wrong": {"secret": OTHER_SECRET}, "expired": {"exp": 1}}


@pytest.mark.parametrize("kind", sorted(WORTHLESS))
def test_worthless_token_of_a_super_user_opens_no_route_and_no_connection(kind: str) -> None:
    """Directly and as a proxy; the same token, good, opens both."""
    cells = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal cells
        verified = await connections.access_of(world.runtime, connections.config(proxy_roles=PROXIES))
        world.access = verified
        await world.restart()
        await with_rights(world)
        application = rest_application(world.broker)
        before = state(world)
        for who in (Who("root"), Who("proxy-root", "root")):
            headers = {"x-original-principal": who.original} if who.original else {}
            worthless = token_of(who.role, **WORTHLESS[kind])
            headers["authorization"] = f"Bearer {worthless.decode()}"
            for route in BEHIND_THE_DOOR:
                for method in methods_of(route):
                    answer = await ask(application, method, path_of(route), body_of(route), headers)
                    assert answer.status == 401, (who, route.path, method, answer)
                    cells += 1
            client = Client(world.broker)
            client.send(connections.connect(worthless, original_principal=who.original))
            assert (await client.error()).error == pb.AuthenticationError
            headers["authorization"] = f"Bearer {token_of(who.role).decode()}"
            good = await ask(application, "GET", "/admin/v2/tenants", b"", headers)
            assert good.status == 200, good
        assert state(world) == before

    run_with_broker(scenario, **SETTINGS)
    assert cells > 1000


@pytest.mark.parametrize("method", ["GET", "others"])
def test_allowed_request_reaches_its_handler(method: str) -> None:
    """The other cells of the table; that which would take everybody's rights along is left out."""
    cells = 0
    rows = [route for route in BUILT if (method_of(route) == "GET") == (method == "GET")]

    async def scenario(world: BrokerWorld) -> None:
        nonlocal cells
        await with_rights(world)
        application = rest_application(world.broker)
        for who in filter(is_let_in, PRINCIPALS):
            # Who deletes a topic takes what was given at it.
            await with_grants(world)
            refused = {id(route) for route, _ in refusals(who)}
            for route in rows:
                if id(route) in refused or (method_of(route), route.path) == ENDS_RIGHTS:
                    continue
                # Who hangs up follows no topic for an hour.
                hangs_up = route.path.endswith("/tail")
                answer = await ask(
                    application, method_of(route), path_of(route), body_of(route), **who._asdict(), hangs_up=hangs_up
                )
                assert answer.status not in (401, 403), (who, route.path, answer)
                cells += 1

    run_with_broker(scenario, access=ACCESS, **SETTINGS)
    assert cells > 500


ENDS_RIGHTS = ("DELETE", "/admin/v2/namespaces/{tenant}/{namespace}")


async def settled(world: BrokerWorld) -> Client:
    client = await world.client("root")
    await client.create_producer()
    await client.publish(0)
    await client.subscribe()
    await client.expect(pb.BaseCommand.MESSAGE)
    return client


def test_command_is_refused_or_taken_as_in_pulsar_and_a_refused_one_leaves_nothing() -> None:
    cells = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal cells
        await with_rights(world)
        await settled(world)
        await (await world.client("root")).create_producer(commands.OTHER)
        for who in filter(is_let_in, PRINCIPALS):
            for name, asked in commands.ASKED.items():
                if asked.action in (TopicOperation.RESET_CURSOR, TopicOperation.UNSUBSCRIBE):
                    continue  # they are about a consumer, which none of these may have
                client = await world.client(*who)
                before = state(world)
                asked.send(client)
                # A producer with a subscription asks twice.
                actions = {asked.action} | ({TopicOperation.PRODUCE} if name.startswith("PRODUCER") else set())
                refused = commands.refusal_of(await commands.answer(client))
                is_refused = refused is not None and refused[0] == pb.AuthorizationError
                assert is_refused == (not all(is_allowed(who, action) for action in actions)), (who, name, refused)
                if is_refused:
                    assert state(world) == before, (who, name)
                cells += 1
                client.lose()
                while client.connection in world.broker.connections.open:
                    await wait_ms(10)

    run_with_broker(scenario, access=ACCESS, **SETTINGS)
    assert cells > 200


def test_every_command_that_asks_is_in_the_table() -> None:
    assert {row.name for row in ROWS if isinstance(row.needs, Asks)} == {
        name.partition(" ")[0] for name in commands.ASKED
    }


@pytest.mark.parametrize("who", [who for who in PRINCIPALS if not is_let_in(who)])
def test_who_is_not_let_in_has_no_connection(who: Who) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        with pytest.raises(AssertionError, match=r"AuthenticationError|AuthorizationError"):
            await client.connect(*who)
        assert client.is_closed

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


#: What who may only produce, or only consume, may ask for over HTTP: written down path by path, from Pulsar's REST.
LOOKS = """
GET /admin/v2/{t}/holes
GET /admin/v2/{t}/internal-info
GET /admin/v2/{t}/internalStats
GET /admin/v2/{t}/lake
GET /admin/v2/{t}/partitioned-internalStats
GET /admin/v2/{t}/partitioned-stats
GET /admin/v2/{t}/partitions
GET /admin/v2/{t}/properties
GET /admin/v2/{t}/sourcePositions
GET /admin/v2/{t}/stats
GET /admin/v2/clusters
GET /admin/v2/proxy-stats/{t}/stats
GET /admin/v2/schemas/{n}/{topic}/metadata
GET /admin/v2/schemas/{n}/{topic}/schema
GET /admin/v2/schemas/{n}/{topic}/schema/{version}
GET /admin/v2/schemas/{n}/{topic}/schemas
GET /admin/v3/transactions/pendingAckInternalStats/{n}/{topic}/{s}
GET /admin/v3/transactions/pendingAckStats/{n}/{topic}/{s}
GET /admin/v3/transactions/positionStatsInPendingAck/{n}/{topic}/{s}/{ledger}/{entry}
GET /admin/v3/transactions/transactionBufferInternalStats/{n}/{topic}
GET /admin/v3/transactions/transactionBufferStats/{n}/{topic}
GET /admin/v3/transactions/transactionInBufferStats/{n}/{topic}/{most}/{least}
GET /admin/v3/transactions/transactionInPendingAckStats/{n}/{topic}/{s}/{most}/{least}
GET /lookup/v2/topic/{t}
POST /admin/v2/schemas/{n}/{topic}/version
"""
OF_COOKS = """
DELETE /admin/v2/schemas/{n}/{topic}/schema
GET /ws/producer/{t}
GET /ws/v2/producer/{t}
POST /admin/v2/schemas/{n}/{topic}/schema
POST /topics/{t}
POST /topics/{t}/partitions/{partition}
"""
OF_EATERS = """
DELETE /admin/v2/{t}/subscription/{s}
GET /admin/v2/{t}/backlog
GET /admin/v2/{t}/examinemessage
GET /admin/v2/{t}/getMessageIdByIndex
GET /admin/v2/{t}/lastMessageId
GET /admin/v2/{t}/ledger/{ledger}/entry/{entry}
GET /admin/v2/{t}/messageid/{timestamp}
GET /admin/v2/{t}/subscription/{s}/position/{position}
GET /admin/v2/{t}/subscription/{s}/properties
GET /admin/v2/{t}/subscription/{s}/replicatedSubscriptionStatus
GET /admin/v2/{t}/subscriptions
GET /ws/consumer/{t}/{s}
GET /ws/reader/{t}
GET /ws/v2/consumer/{t}/{s}
GET /ws/v2/reader/{t}
POST /admin/v2/{t}/all_subscription/expireMessages/{seconds}
POST /admin/v2/{t}/subscription/{s}/analyzeBacklog
POST /admin/v2/{t}/subscription/{s}/expireMessages
POST /admin/v2/{t}/subscription/{s}/expireMessages/{seconds}
POST /admin/v2/{t}/subscription/{s}/replicatedSubscriptionStatus
POST /admin/v2/{t}/subscription/{s}/resetcursor
POST /admin/v2/{t}/subscription/{s}/resetcursor/{timestamp}
POST /admin/v2/{t}/subscription/{s}/skip/{count}
POST /admin/v2/{t}/subscription/{s}/skip_all
PUT /admin/v2/{t}/backlogSize
PUT /admin/v2/{t}/subscription/{s}
PUT /admin/v2/{t}/subscription/{s}/properties
DELETE /topics/{t}/subscriptions/{s}/consumers/{consumer}
GET /topics/{t}/tail
POST /topics/{t}/subscriptions/{s}/consumers
POST /topics/{t}/subscriptions/{s}/consumers/{consumer}/acknowledge
POST /topics/{t}/subscriptions/{s}/consumers/{consumer}/negativeAcknowledge
POST /topics/{t}/subscriptions/{s}/consumers/{consumer}/receive
"""
OF_GRANTED = """
GET /admin/v2/non-persistent/{n}/{bundle}
GET /admin/v2/namespaces/{n}/bundles
GET /admin/v2/namespaces/{n}/leftTopics
GET /admin/v2/namespaces/{n}/topics
GET /admin/v2/{d}/{n}
GET /admin/v2/{d}/{n}/partitioned
GET /lookup/v2/topic/{t}/bundle
POST /admin/v2/namespaces/{n}/clearBacklog
POST /admin/v2/namespaces/{n}/clearBacklog/{s}
POST /admin/v2/namespaces/{n}/unsubscribe/{s}
POST /admin/v2/namespaces/{n}/{bundle}/clearBacklog
POST /admin/v2/namespaces/{n}/{bundle}/clearBacklog/{s}
POST /admin/v2/namespaces/{n}/{bundle}/unsubscribe/{s}
"""
OF_SUPER_USERS = """
DELETE /admin/v2/namespaces/{n}/persistence/bookieAffinity
DELETE /admin/v2/resource-quotas/{n}/{bundle}
DELETE /admin/v3/transactions/bufferSnapshot/{n}/{topic}
GET /admin/v2/broker-stats/broker-resource-availability/{n}
GET /admin/v2/namespaces/{n}/persistence/bookieAffinity
GET /admin/v2/resource-quotas/{n}/{bundle}
GET /admin/v2/{t}/shadowState
GET /admin/v3/transactions/bufferSnapshot/{n}/{topic}
POST /admin/v2/namespaces/{n}/migration
POST /admin/v2/namespaces/{n}/persistence/bookieAffinity
POST /admin/v2/resource-quotas/{n}/{bundle}
PUT /admin/v2/namespaces/{n}/unload
PUT /admin/v2/namespaces/{n}/{bundle}/split
PUT /admin/v2/namespaces/{n}/{bundle}/unload
PUT /admin/v2/{t}/shadowState
PUT /admin/v3/transactions/bufferSnapshot/{n}/{topic}
"""


def shown(route: Route) -> str:
    path = route.path.replace("{domain:domain}/{tenant}/{namespace}/{topic}", "{t}").replace("{domain:domain}", "{d}")
    path = re.sub(r"\{\w*subscription\}", "{s}", path.replace("{tenant}/{namespace}", "{n}"))
    return f"{method_of(route)} {path}"


@pytest.mark.parametrize(
    ("role", "lists"),
    [
        ("stranger", ("GET /admin/v2/clusters",)),
        ("eater", (LOOKS, OF_EATERS)),
        ("cook", (LOOKS, OF_COOKS)),
        ("granted", (LOOKS, OF_EATERS, OF_COOKS, OF_GRANTED)),
    ],
)
def test_paths_that_a_role_may_use_are_those_written_down(role: str, lists: tuple[str, ...]) -> None:
    """So no path asks for less than it should: all others take an administrator (CVE-2024-28098, CVE-2024-29834)."""
    assert allowed_paths(role) == sorted(line for text in lists for line in text.splitlines() if line)


def test_paths_in_a_tenant_that_its_administrator_may_not_use_are_those_written_down() -> None:
    """Nor does one take an administrator where Pulsar takes a super-user; ``make interop`` asks 4.2.4 for each."""
    asking = {shown(route) for route in BUILT if not isinstance(route.needs, Anyone)}
    refused = asking - set(allowed_paths("owner"))
    in_tenant = {path for path in refused if any(part in path for part in ("{n}", "{t}", "{tenant}"))}
    assert sorted(in_tenant) == sorted(line for line in OF_SUPER_USERS.splitlines() if line)


def test_what_a_namespace_is_made_with_takes_what_the_own_path_of_each_policy_takes() -> None:
    """Else an administrator of the tenant sets by its body what a super-user alone may set by the policy's path."""
    owners, declared, without_path = allowed_paths("owner"), set[str](), set[str]()
    for row in POLICIES:
        level = row.namespace
        if level is None:
            continue
        own = f"/admin/v2/namespaces/{{n}}/{level.rest.path}" if level.rest is not None else "-"
        ways = [
            route
            for route in BUILT
            if re.fullmatch(rf"(POST|PUT) {re.escape(own)}(/{{.*}})?", shown(route)) is not None
        ]
        for route in ways:
            assert shown(route) in owners or level.needs is action_of(route), (row.name, shown(route))
        declared |= {row.name} if level.needs is not None else set()
        without_path |= set() if ways else {row.name}
    assert declared == {"migrated"}
    # What these say is about the tenant's own topics alone.
    assert without_path == {
        "bundles",
        "clusterDispatchRate",
        "deleted",
        "isAllowAutoUpdateSchemaWithReplicator",
        "latencyStatsSampleRate",
    }


def allowed_paths(role: str) -> list[str]:
    """Sorted, without those that ask nobody."""
    rules = Rules(frozenset(["root"]))
    facts = Facts(frozenset(["owner"]), grants_of({"auth_policies": GRANTS}))
    allowed = []
    for route in BUILT:
        if isinstance(route.needs, Anyone):
            continue
        action = action_of(route)
        about = of_topic(TopicName.parse(TOPIC), "sub") if "{topic}" in route.path else of_namespace("public/default")
        if "{namespace}" not in route.path and "OnTopics" not in route.path:
            about = Resource(tenant="public") if "{tenant}" in route.path else Resource()
        if decide(rules, facts, Principal(role), action, about) is None:
            allowed.append(shown(route))
    return sorted(allowed)
