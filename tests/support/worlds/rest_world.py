"""The admin REST of a broker in a simulation, as an application without a socket."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from starlette.types import ASGIApp, Message, Scope

from geminga.broker.composition.metrics import Metrics
from geminga.broker.composition.service import Broker
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.loading import application_maker
from geminga.broker.statistics.topics import TopicStatistics


def rest_application(broker: Broker, cluster_name: str = "standalone", **settings: Any) -> ASGIApp:
    """The application for a broker, put together as the composition root does it; ``settings`` of the context."""
    return application_maker(lambda: rest_context(broker, cluster_name, **settings))()


def rest_context(broker: Broker, cluster_name: str = "standalone", **settings: Any) -> RestContext:
    """What its handlers see of the broker."""
    statistics = TopicStatistics(broker.runtime.clock, broker)
    metrics = Metrics(broker, statistics, cluster=cluster_name, rows=broker.access.metrics)
    return RestContext(
        status=broker,
        topics=broker.administered,
        resources=broker.resources,
        policies=broker.policies,
        policies_changed=broker.policies_changed,
        use_schemas=lambda: broker.schemas,
        use_metrics=lambda: metrics,
        use_statistics=lambda: statistics,
        lookup=broker.lookup,
        ownership=broker.ownership,
        ledgers=broker.ledgers,
        clock=broker.runtime.clock,
        disk=broker.runtime.disk,
        config=broker.config,
        cluster=cluster_name,
        version="test",
        access=broker.access,
        transactions=broker.use_transactions if broker.late_transactions.is_on else None,
        **settings,
    )


class Answer(NamedTuple):
    status: int
    body: bytes
    #: By name in small letters.
    headers: Mapping[str, str] = {}

    @property
    def reason(self) -> str:
        reason: str = json.loads(self.body)["reason"]
        return reason


def http_scope(method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> Scope:
    """Of a request for ``target``, which is a path with its query, of nobody in particular."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": list(headers),
        "query_string": query.encode(),
        "server": ("broker", 8080),
    }


async def ask(
    application: ASGIApp,
    method: str,
    path: str,
    body: bytes = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    role: str = "",
    original: str = "",
    hangs_up: bool = False,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Answer:
    """``role``: what who asks says it is (:class:`support.house.deciding.TakenAtTheirWord`), for ``original``.

    ``hangs_up``: who asks closes the connection behind the request; else it stays. ``meanwhile``: what happens while
    half of the body has come.
    """
    sent: list[Message] = []
    is_asked = is_begun = False

    async def receive() -> Message:
        nonlocal body, is_asked, is_begun
        if is_asked and hangs_up:
            return {"type": "http.disconnect"}
        if meanwhile is not None and not is_begun:
            is_begun = True
            first, body = body[: len(body) // 2], body[len(body) // 2 :]
            return {"type": "http.request", "body": first, "more_body": True}
        if meanwhile is not None and not is_asked:
            await meanwhile()
        is_asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    lines = [(b"content-type", b"application/json")]
    lines += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    lines += [(b"authorization", role.encode())] if role else []
    lines += [(b"x-original-principal", original.encode())] if original else []
    scope = {**http_scope(method, path, lines), "client": ("10.0.0.7", 51042)}
    await application(scope, receive, send)
    told = {name.decode().lower(): value.decode() for name, value in sent[0].get("headers", ())}
    return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]), told)


async def done(application: ASGIApp, *asked: tuple[str, str, object]) -> None:
    """Ask for these, by method, path and document (None: no body). Raises AssertionError where one is refused."""
    for method, path, document in asked:
        body = b"" if document is None else json.dumps(document).encode()
        answer = await ask(application, method, path, body)
        assert answer.status in (200, 204), (path, answer)


#: Two other clusters, one of which the tenant may use.
TWO_CLUSTERS: Final[tuple[tuple[str, str, object], ...]] = (
    ("PUT", "/admin/v2/clusters/far", {"serviceUrl": "http://far:8080"}),
    ("PUT", "/admin/v2/clusters/strange", {"serviceUrl": "http://strange:8080"}),
    ("POST", "/admin/v2/tenants/public", {"allowedClusters": ["standalone", "far"]}),
)
