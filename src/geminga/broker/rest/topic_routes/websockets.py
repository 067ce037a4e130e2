"""Doors of Pulsar's WebSocket API, ``/ws/...``, and ``proxy-stats``, which tells of its sockets.

Each door is an ordinary request until it is answered: who asks and for what is decided as for any other, what is to
stand behind the socket is made, and an error of that is an answer of HTTP with Pulsar's status. Then the connection
changes hands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geminga.broker.access.core.actions import Action, Anyone, Resource, SuperUser, TopicOperation, of_topic
from geminga.broker.access.ports import Allowed, Denied
from geminga.broker.access.refusals import refused_request
from geminga.broker.core.coercion import Json
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.requests import (
    RestError,
    authorization_of,
    context_of,
    json_response,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import DOMAIN, Route
from geminga.broker.rest.http.http_connection import CERTIFICATE_IN_STATE, TAKE_OVER_IN_STATE, TakesOver
from geminga.broker.websocket.clients import SocketOwner
from geminga.broker.websocket.core.parameters import (
    ParameterError,
    consumer_parameters,
    producer_parameters,
    reader_parameters,
    topics_parameters,
)
from geminga.broker.websocket.service import Admitted, SocketService
from geminga.broker.websocket.sessions import ConsumerSession, PingSession, ReaderSession, SocketSession
from geminga.broker.websocket.socket import Upgrade
from geminga.broker.websocket.topic_patterns import topics_pattern
from geminga.model.errors import GemingaError, NotFoundError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.access.core.principal import Principal

#: Ends the name of a reader's subscription, where rights are asked for.
_READER: Final = "-websocket-reader"
#: What is asked for, of what.
Asked = Sequence[tuple[Action, Resource]]


class _Opened(Response):
    """101: the connection is the session's socket from now on."""

    def __init__(self, service: SocketService, session: SocketSession, upgrade: Upgrade) -> None:
        super().__init__(status_code=101)
        self._service = service
        self._session = session
        self._upgrade = upgrade

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        take_over: TakesOver = scope["state"][TAKE_OVER_IN_STATE]
        service, session = self._service, self._session
        if take_over(lambda on_lost: service.socket_of(session, self._upgrade, on_lost)):
            service.begin(session)
        else:
            session.lost()


async def producer(request: Request) -> Response:
    """A socket that publishes."""
    topic = topic_of(request)
    given = producer_parameters(request.query_params)
    asked = [(TopicOperation.PRODUCE, of_topic(topic))]
    return await _opened(request, asked, lambda service, admitted: service.open_producer(admitted, str(topic), given))


async def consumer(request: Request) -> Response:
    """A socket that receives and acknowledges."""
    topic, subscription = topic_of(request), subscription_name(request)
    given = consumer_parameters(request.query_params)
    asked = [(TopicOperation.CONSUME, of_topic(topic, subscription))]
    if given.redeliveries_max:
        letters = _named(given.dead_letter_topic or f"{topic}-{subscription}-DLQ", "deadLetterTopic")
        asked.append((TopicOperation.PRODUCE, of_topic(letters)))
        await _require(request, asked[1:])
    return await _opened(
        request, asked, lambda service, admitted: service.open_consumer(admitted, str(topic), subscription, given)
    )


async def topics_consumer(request: Request) -> Response:
    """A socket that receives from several topics, named or by a pattern."""
    subscription = subscription_name(request)
    given, about = consumer_parameters(request.query_params), topics_parameters(request.query_params)
    if about.pattern:
        # What somebody may do in all of the namespace; of single topics the brokers are asked again.
        pattern = topics_pattern(about.pattern)
        topics: list[str] | re.Pattern[str] = pattern.compiled
        names = [pattern.any_topic]
    else:
        names = [_named(name, "topics") for name in about.topics]
        topics = [str(name) for name in names]
    asked: list[tuple[Action, Resource]] = [(TopicOperation.CONSUME, of_topic(name, subscription)) for name in names]
    if given.redeliveries_max:
        if not given.dead_letter_topic:
            raise ParameterError("Invalid query params: maxRedeliverCount needs deadLetterTopic with several topics")
        asked.append((TopicOperation.PRODUCE, of_topic(_named(given.dead_letter_topic, "deadLetterTopic"))))
    await _require(request, asked)
    return await _opened(
        request, asked, lambda service, admitted: service.open_consumer(admitted, topics, subscription, given)
    )


async def reader(request: Request) -> Response:
    """A socket that reads."""
    topic = topic_of(request)
    given = reader_parameters(request.query_params)
    # By a subscription that is its own, and begins with the role as Prefix wants it: the client behind the socket may
    # be the broker itself, which is asked for none.
    principal: Principal = request.state.principal
    asked = [(TopicOperation.CONSUME, of_topic(topic, f"{principal.speaker}{_READER}"))]
    await _require(request, asked)
    return await _opened(request, asked, lambda service, admitted: service.open_reader(admitted, str(topic), given))


async def ping(request: Request) -> Response:
    """A socket that is there to be pinged."""

    async def make(service: SocketService, admitted: Admitted) -> SocketSession:
        return service.open_ping(admitted)

    return await _opened(request, [], make)


async def with_cluster(request: Request) -> Response:
    """400: a path of Pulsar 1."""
    raise RestError(
        400,
        "a name with a cluster in it (tenant/cluster/namespace/topic) is of Pulsar 1, and not served, as in Pulsar 4: "
        "expected persistent/tenant/namespace/topic",
    )


async def _opened(
    request: Request,
    asked: Asked,
    make: Callable[[SocketService, Admitted], Coroutine[Any, Any, SocketSession]],
) -> Response:
    service = _service_of(request)
    upgrade = Upgrade(request.headers.items(), service.limits.of_each)
    if upgrade.refusal is not None:
        raise RestError(*upgrade.refusal)
    if TAKE_OVER_IN_STATE not in request.scope.get("state", {}):
        raise RestError(503, "the connection is gone, or can not change hands")
    return _Opened(service, await make(service, _admitted(request, asked)), upgrade)


def _service_of(request: Request) -> SocketService:
    """Raises RestError."""
    use = context_of(request).sockets
    if use is None:
        raise RestError(404, "WebSockets are not served by this broker: expected webSocketServiceEnabled=true")
    return use()


def _admitted(request: Request, asked: Asked) -> Admitted:
    context, state = context_of(request), request.state
    principal: Principal = state.principal
    certificate: bytes | None = request.scope.get("state", {}).get(CERTIFICATE_IN_STATE)
    address = request.client

    async def ask_again() -> None:
        await _ask(context, principal, asked)

    return Admitted(
        SocketOwner(authorization_of(request), certificate, bool(principal.original)),
        f"{address.host}:{address.port}" if address is not None else "unknown",
        getattr(state, "until_s", None),
        ask_again if asked and principal.role else None,
    )


async def _require(request: Request, asked: Asked) -> None:
    """Raises AuthorizationError (403)."""
    await _ask(context_of(request), request.state.principal, asked)


async def _ask(context: RestContext, principal: Principal, asked: Asked) -> None:
    for action, resource in asked:
        decision = context.access.authorizer.decide(principal, action, resource)
        if not isinstance(decision, Allowed | Denied):
            decision = await decision
        if isinstance(decision, Denied):
            raise refused_request(principal, action, decision)


def _named(text: str, parameter: str) -> TopicName:
    """Raises ParameterError."""
    try:
        return TopicName.parse(text)
    except GemingaError as error:
        raise ParameterError(f"Invalid query params: {parameter}: {error}") from None


# ---- what is told of sockets


async def stats(request: Request) -> Response:
    """Topic -> its sockets."""
    found: dict[str, list[SocketSession]] = {}
    for session in _sessions(request):
        found.setdefault(session.topic, []).append(session)
    answer: dict[str, Json] = {topic: _of_topic(sessions) for topic, sessions in found.items()}
    return json_response(answer)


async def topic_stats(request: Request) -> Response:
    """The sockets of one topic; 404 if there are none."""
    topic = str(topic_of(request))
    sessions = [session for session in _sessions(request) if session.topic == topic]
    if not sessions:
        raise NotFoundError("Topic does not exist")
    return json_response(_of_topic(sessions))


async def metrics(request: Request) -> Response:
    """What sockets did in the last whole minute, by namespace."""
    use = context_of(request).sockets
    intervals = {} if use is None else use().last_interval
    rows: list[Json] = [
        {"metrics": dict(counts), "dimensions": {"namespace": namespace}} for namespace, counts in intervals.items()
    ]
    return json_response(rows)


def _sessions(request: Request) -> Iterable[SocketSession]:
    return [session for session in _service_of(request).sessions if not isinstance(session, PingSession)]


def _of_topic(sessions: Iterable[SocketSession]) -> dict[str, Json]:
    producers: list[Json] = []
    consumers: list[Json] = []
    for session in sessions:
        told: dict[str, Json] = {"remoteConnection": f"/{session.peer}"}
        if isinstance(session, ConsumerSession | ReaderSession):
            name, kind, mode = session.subscription
            told |= {"subscriptionName": name, "subscriptionType": kind, "subscriptionMode": mode}
            consumers.append({**told, "numberOfMsgDelivered": session.messages})
        else:
            producers.append({**told, "numberOfMsgPublished": session.messages})
    return {"producerStats": producers, "consumerStats": consumers}


_TOPIC: Final = f"{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}"
_OLD_TOPIC: Final = f"{DOMAIN}/{{tenant}}/{{cluster}}/{{namespace}}/{{topic}}"
_EACH_TOPIC: Final = Anyone("the handler asks about each topic that the query names")
_NO_TOPIC: Final = Anyone("it is about nothing of the broker's; who asks must be known all the same")
_STATS: Final = "/admin/v2/proxy-stats"

ROUTES: Final = [
    *(
        route
        for version in ("/ws", "/ws/v2")
        for route in (
            Route("GET", f"{version}/producer/{_TOPIC}", producer, TopicOperation.PRODUCE),
            Route("GET", f"{version}/consumer/{_TOPIC}/{{form_subscription}}", consumer, TopicOperation.CONSUME),
            Route("GET", f"{version}/reader/{_TOPIC}", reader, TopicOperation.CONSUME),
            Route("GET", f"{version}/pingpong", ping, _NO_TOPIC),
        )
    ),
    Route("GET", "/ws/v3/consumer/{form_subscription}", topics_consumer, _EACH_TOPIC),
    Route("GET", f"/ws/producer/{_OLD_TOPIC}", with_cluster, _NO_TOPIC),
    Route("GET", f"/ws/consumer/{_OLD_TOPIC}/{{form_subscription}}", with_cluster, _NO_TOPIC),
    Route("GET", f"/ws/reader/{_OLD_TOPIC}", with_cluster, _NO_TOPIC),
]
STATISTICS: Final = [
    Route("GET", f"{_STATS}/metrics", metrics, SuperUser.LOOK_AT_BROKER),
    Route("GET", f"{_STATS}/stats", stats, SuperUser.LOOK_AT_BROKER),
    Route("GET", f"{_STATS}/{_TOPIC}/stats", topic_stats, TopicOperation.GET_STATS),
]
