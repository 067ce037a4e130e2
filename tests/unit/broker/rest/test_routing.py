"""Which handler a path and method have."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Scope

from geminga.broker.rest.calls.core import unbuilt
from geminga.broker.rest.calls.routing import DOMAIN, TOPIC_PATH, TOPICS_PATH, SegmentRouter, unbuilt_routes
from geminga.broker.rest.families import FAMILIES, all_rows, family_of, rows_of
from geminga.broker.rest.loading import application_maker
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, rest_context


def telling(name: str) -> object:
    async def tell(request: Request) -> Response:
        return PlainTextResponse(name)

    return tell


def asked(router: SegmentRouter, method: str, path: str) -> str | int:
    """What the handler tells, or the status of the refusal."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "headers": [],
        "query_string": b"",
        "app": None,
    }
    try:
        asyncio.run(router(scope, receive, send))
    except HTTPException as error:
        return error.status_code
    return sent[-1]["body"].decode()


def test_the_more_particular_path_comes_first_whichever_was_named_first() -> None:
    paths = ["/b/{x}", "/b/health", "/b/{x}/{y}", f"/b/{DOMAIN}/y", "/b/{x}/stats"]
    for order in itertools.permutations(paths):
        router = SegmentRouter(Route(path, telling(path), methods=["GET"]) for path in order)
        assert asked(router, "GET", "/b/health") == "/b/health"
        assert asked(router, "GET", "/b/other") == "/b/{x}"
        assert asked(router, "GET", "/b/1/stats") == "/b/{x}/stats"
        assert asked(router, "GET", "/b/persistent/y") in (f"/b/{DOMAIN}/y", "/b/{x}/{y}")
        assert asked(router, "GET", "/b/1/2") == "/b/{x}/{y}"
        assert asked(router, "GET", "/b") == 404
        assert asked(router, "PUT", "/b/health") == 405


def test_another_method_of_a_particular_path_may_be_that_of_a_general_one() -> None:
    routes = [
        Route("/n/{topic}", telling("create"), methods=["PUT"]),
        Route("/n/partitioned", telling("list"), methods=["GET"]),
    ]
    router = SegmentRouter(routes)
    assert asked(router, "GET", "/n/partitioned") == "list"
    # As in Pulsar: a topic may have that name.
    assert asked(router, "PUT", "/n/partitioned") == "create"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_domain_is_one_of_two(domain: str) -> None:
    router = SegmentRouter([Route(TOPIC_PATH, telling("topic")), Route(TOPICS_PATH, telling("list"))])
    assert asked(router, "GET", f"/admin/v2/{domain}/t/n/x") == "topic"
    assert asked(router, "GET", f"/admin/v2/{domain}/t/n") == "list"
    for other in ("", "x", f"{domain}s", domain.upper(), "persistent%2F"):
        assert asked(router, "GET", f"/admin/v2/{other}/t/n") == 404


def test_every_path_finds_its_own_route_among_all() -> None:
    """What is built is never hidden by what is not, nor the other way round."""
    routes = [*all_rows(), *unbuilt_routes()]
    named = [
        Route(route.path, telling(f"{method} {route.path}"), methods=[method])
        for route in routes
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    router = SegmentRouter(named)
    for route in named:
        (method,) = (route.methods or set()) - {"HEAD"}
        path = re.sub(r"\{[^}]*\}", "1", route.path.replace(DOMAIN, "persistent"))
        assert asked(router, method, path) == f"{method} {route.path}"
    assert len(routes) == len(all_rows()) + len(unbuilt.ROUTES)


def test_each_row_is_looked_for_where_it_is() -> None:
    """A family loads what its rows are in; a row elsewhere would be answered 404."""
    rows = all_rows()
    found = [route for family in FAMILIES for route in rows_of(family)]
    assert len(found) == len(rows)
    assert {(route.path, *sorted(route.methods)) for route in found} == {
        (route.path, *sorted(route.methods)) for route in rows
    }


@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("/metrics", "/metrics"),
        ("/admin/v2/brokers", "/admin/v2/brokers"),
        ("/admin/v2/brokers/a/b/ownedNamespaces", "/admin/v2/brokers"),
        ("/admin/v2/non-persistent/t/n", "/admin/v2/persistent"),
        ("/admin/v2/persistent/t/n/x/stats", "/admin/v2/persistent"),
        ("/lookup/v2/topic/persistent/t/n/x", "/lookup"),
        ("/admin", "/admin"),
        ("", ""),
    ],
)
def test_family_of_a_path(path: str, family: str) -> None:
    assert family_of(path) == family


def test_family_that_can_not_be_loaded_is_answered_503_and_tried_again() -> None:
    failures: list[BaseException] = [OSError(24, "Too many open files"), MemoryError()]

    async def load(make: Callable[[], SegmentRouter]) -> SegmentRouter:
        if failures:
            raise failures.pop()
        return make()

    async def scenario(world: BrokerWorld) -> None:
        application = application_maker(lambda: rest_context(world.broker), load)()
        for _ in range(2):
            answer = await ask(application, "GET", "/admin/v2/tenants")
            assert (answer.status, answer.reason) == (503, "the broker could not load what answers /admin/v2/tenants")
        assert (await ask(application, "GET", "/admin/v2/tenants")).status == 200

    run_with_broker(scenario)


def test_paths_that_strangers_make_up_are_not_kept() -> None:
    made: list[SegmentRouter] = []

    async def load(make: Callable[[], SegmentRouter]) -> SegmentRouter:
        made.append(make())
        return made[-1]

    async def scenario(world: BrokerWorld) -> None:
        application = application_maker(lambda: rest_context(world.broker), load)()
        for number in range(3):
            assert (await ask(application, "GET", f"/admin/v2/x{number}")).status == 404
            assert (await ask(application, "GET", "/admin/v2/clusters")).status == 200
        assert len(made) == 1

    run_with_broker(scenario)
