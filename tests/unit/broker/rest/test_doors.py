"""Every route asks for what its row says, is refused where that is denied, and has changed nothing then."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.core.actions import (
    EVERYTHING,
    Action,
    Anyone,
    BrokerOperation,
    NamespaceOperation,
    PolicyName,
    Resource,
    SuperUser,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
    writing,
)
from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.access.ports import Access
from geminga.broker.rest.calls.routing import DOMAIN, TOPIC_PATH, InBody, Route, distinct
from geminga.broker.rest.families import all_rows
from geminga.model.errors import InvariantError
from geminga.model.topic_name import TopicName
from geminga.runtime import delay
from support.house.deciding import Denying, Secrets
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, rest_application
from support.worlds.rights_world import NAMESPACE, Story, tell

NAMES = {
    "tenant": "public",
    "namespace": "default",
    "topic": "topic",
    "subscription": "sub",
    "cluster": "standalone",
    "role": "jane",
    "version": "0",
    "count": "1",
    "seconds": "1",
    "timestamp": "1",
    "ledger": "0",
    "entry": "0",
    "position": "1",
    "partition": "0",
}
HERE = TopicName.parse(TOPIC)


def path_of(route: Route) -> str:
    return re.sub(r"\{([^}]*)\}", lambda found: NAMES.get(found[1], "x"), route.path.replace(DOMAIN, "persistent"))


def method_of(route: Route) -> str:
    (method,) = (route.methods or set()) - {"HEAD"}
    return method


def state(world: BrokerWorld) -> dict[str, object]:
    return {
        "metadata": world.metadata_nodes(),
        "topics": {
            name: (
                id(topic),
                sorted((each.name, each.cursor.mark_delete_position) for each in topic.subscriptions.values()),
            )
            for name, topic in world.broker.topics.items()
        },
    }


ASKING = [route for route in all_rows() if not isinstance(route.needs, Anyone)]


def action_of(route: Route) -> Action:
    assert not isinstance(route.needs, Anyone)
    return route.needs.action if isinstance(route.needs, InBody) else route.needs


def body_of(route: Route) -> bytes:
    if not isinstance(route.needs, InBody):
        return b"{}"
    return json.dumps([{"topic": TOPIC, "role": "jane", "actions": ["consume"]}]).encode()


@pytest.mark.parametrize("is_slow", [False, True])
def test_denied_request_is_refused_and_has_changed_nothing(is_slow: bool) -> None:
    authorizer = Denying(is_slow=is_slow)

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        await client.subscribe()
        application = rest_application(world.broker)
        before = state(world)
        for route in ASKING:
            authorizer.denied = (action_of(route),)
            authorizer.asked.clear()
            answer = await ask(application, method_of(route), path_of(route), body_of(route))
            assert (answer.status, answer.reason) == (401, "Need to authenticate to perform the request"), route.path
            assert [(who, action) for who, action, _ in authorizer.asked] == [(ANONYMOUS, action_of(route))], route.path
            assert state(world) == before, route.path
        assert not client.is_closed
        await client.publish(1)

    run_with_broker(scenario, access=authorizer.access)


def test_only_what_is_denied_is_refused() -> None:
    """Of each row: denied are all actions but its own, and it is let through to its handler."""
    # What deletes leaves little to the others: it comes at the end of a broker's life, a few at a time.
    rows = all_rows()
    deleting = [route for route in rows if method_of(route) == "DELETE"]
    kept = [route for route in rows if route not in deleting]
    for routes in (kept, *(deleting[first : first + 8] for first in range(0, len(deleting), 8))):
        run_with_broker(let_through(routes, authorizer := Denying()), access=authorizer.access)


def let_through(routes: Sequence[Route], authorizer: Denying) -> Callable[[BrokerWorld], Awaitable[None]]:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe()
        application = rest_application(world.broker)
        for route in routes:
            own = set() if isinstance(route.needs, Anyone) else {action_of(route)}
            authorizer.denied = {action_of(each) for each in ASKING} - own
            answer = await ask(application, method_of(route), f"{path_of(route)}?force=true", body_of(route))
            assert answer.status not in (401, 403, 500), (route.path, answer)
        authorizer.denied = ()

    return scenario


@pytest.mark.parametrize(
    ("method", "path", "action", "resource"),
    [
        (
            "GET",
            "/lookup/v2/topic/persistent/t/n/x",
            TopicOperation.LOOKUP,
            of_topic(TopicName.parse("persistent://t/n/x")),
        ),
        (
            "POST",
            "/admin/v2/non-persistent/t/n/x%2Fy/subscription/a%20b/skip_all",
            TopicOperation.SKIP,
            of_topic(TopicName.parse("non-persistent://t/n/x/y"), "a b"),
        ),
        (
            "GET",
            "/admin/v2/schemas/t/n/x/schema",
            TopicOperation.GET_METADATA,
            of_topic(TopicName.parse("persistent://t/n/x")),
        ),
        ("PUT", "/admin/v2/persistent/t/n/x", NamespaceOperation.CREATE_TOPIC, of_namespace("t/n")),
        ("DELETE", "/admin/v2/namespaces/t/n/retention", writing(PolicyName.RETENTION), of_namespace("t/n")),
        (
            "POST",
            "/admin/v2/persistent/t/n/x/messageTTL",
            writing(PolicyName.TTL),
            of_topic(TopicName.parse("persistent://t/n/x")),
        ),
        ("PUT", "/admin/v2/namespaces/t/n", TenantOperation.CREATE_NAMESPACE, of_namespace("t/n")),
        ("GET", "/admin/v2/namespaces/t", TenantOperation.LIST_NAMESPACES, Resource(tenant="t")),
        ("GET", "/admin/v2/tenants", TenantOperation.LIST_TENANTS, EVERYTHING),
        ("PUT", "/admin/v2/namespaces/t/n/unload", SuperUser.UNLOAD_NAMESPACE, of_namespace("t/n")),
        ("GET", "/admin/v2/brokers/health", BrokerOperation.HEALTH_CHECK, EVERYTHING),
    ],
)
def test_question_is_about_what_the_path_names(method: str, path: str, action: Action, resource: Resource) -> None:
    authorizer = Denying((action,), reason="not you")

    async def scenario(world: BrokerWorld) -> None:
        answer = await ask(rest_application(world.broker), method, path)
        assert (answer.status, answer.reason) == (401, "not you")
        assert authorizer.asked == [(ANONYMOUS, action, resource)]

    run_with_broker(scenario, access=authorizer.access)


def test_name_that_can_be_none_is_refused_before_anybody_is_asked() -> None:
    authorizer = Denying()

    async def scenario(world: BrokerWorld) -> None:
        answer = await ask(rest_application(world.broker), "PUT", "/admin/v2/namespaces/public/a$b")
        assert answer.status == 412
        assert not authorizer.asked

    run_with_broker(scenario, access=authorizer.access)


async def nothing(request: Request) -> Response:
    """Answers."""
    return Response()


def test_second_row_of_a_method_and_path_is_refused() -> None:
    def row(methods: str, path: str) -> Route:
        return Route(methods, path, nothing, TenantOperation.GET_TENANT)

    assert len(distinct([row("GET", "/a/{x}"), row("PUT", "/a/{y}"), row("GET", "/a/b")])) == 3
    with pytest.raises(InvariantError, match=r"two rows for GET /a/\{y\}, the other one is /a/\{x\}"):
        distinct([row("GET", "/a/{x}"), row("GET PUT", "/a/{y}")])


def test_row_whose_path_names_nothing_to_decide_about_is_refused() -> None:
    for needs in (TopicOperation.SKIP, NamespaceOperation.GET_TOPICS, writing(PolicyName.TTL)):
        with pytest.raises(InvariantError, match="names no"):
            Route("GET", "/admin/v2/tenants/{tenant}", nothing, needs)
    assert Route("GET", TOPIC_PATH, nothing, TopicOperation.SKIP).needs is TopicOperation.SKIP


ADMINISTERED = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}


def test_administration_that_is_taken_while_a_body_comes_is_over_for_that_request() -> None:
    """Else requests that were begun before, a byte now and then, would bring it back."""

    async def scenario(story: Story) -> None:
        await story.do("POST", "/admin/v2/tenants/public", ADMINISTERED)

        taken: list[object] = []

        async def take() -> None:
            await story.do("POST", "/admin/v2/tenants/public", {**ADMINISTERED, "adminRoles": ["another"]})
            await delay(100)
            taken.append(story.world.metadata_nodes())

        for method, path, body, status in (
            ("POST", "/admin/v2/tenants/public", ADMINISTERED, 401),
            ("POST", f"{NAMESPACE}/permissions/owner", ["produce"], 403),
            ("POST", f"{NAMESPACE}/messageTTL", 60, 403),
        ):
            await story.do("POST", "/admin/v2/tenants/public", ADMINISTERED)
            sent = json.dumps(body).encode()
            answer = await ask(story.application, method, path, sent, role="owner", meanwhile=take)
            assert answer.status == status, (path, answer)
            assert story.world.metadata_nodes() == taken.pop()
            await story.do("POST", "/admin/v2/tenants/public", ADMINISTERED)
            await delay(100)
            answer = await ask(story.application, method, path, sent, role="owner", meanwhile=no_news)
            assert answer.status == 204, (path, answer)

    tell(scenario)


async def no_news() -> None:
    """Nothing happens meanwhile."""


def test_message_over_http_whose_body_comes_after_the_right_is_gone_is_not_stored() -> None:
    async def scenario(story: Story) -> None:
        await story.grant("jane", "produce")
        await (await story.producer("root")).close_producer()
        body = json.dumps({"messages": [{"payload": "late"}]}).encode()
        path = "/topics/persistent/public/default/t"

        async def take() -> None:
            await story.revoke("jane")

        topic = story.world.broker.topics["persistent://public/default/t"]
        assert (await ask(story.application, "POST", path, body, role="jane", meanwhile=take)).status == 401
        last = topic.last_position
        await story.grant("jane", "produce")
        assert (await ask(story.application, "POST", path, body, role="jane", meanwhile=no_news)).status == 200
        assert topic.last_position > last

    tell(scenario)


def test_body_that_comes_after_the_credentials_have_expired_is_not_acted_on() -> None:
    secrets = Secrets({b"root": "root"})

    async def scenario(story: Story) -> None:
        async def wait() -> None:
            await delay(2000)

        for path, body in (
            (f"{NAMESPACE}/permissions/jane", b'["consume"]'),
            ("/admin/v2/namespaces/grantPermissionsOnTopics", json.dumps([GRANT]).encode()),
        ):
            secrets.until_s = story.world.runtime.clock.monotonic() + 1
            for meanwhile, status in ((no_news, 204), (wait, 401)):
                answer = await ask(story.application, "POST", path, body, role="root", meanwhile=meanwhile)
                assert answer.status == status, answer
            assert answer.reason == "the credentials have expired"

    tell(scenario, Access(authenticator=secrets, authorizer=ANONYMOUS_MAY), acl_changes_without_topics=True)


GRANT = {"topic": "persistent://public/default/t", "role": "jane", "actions": ["consume"]}
