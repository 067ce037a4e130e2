"""What requests about messages share: what is kept between them, made with the first; names; bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.types import Receive

from geminga.broker.core.coercion import Json
from geminga.broker.rest.calls.context import MessageLimits
from geminga.broker.rest.calls.requests import RestError, context_of, required_body, topic_of
from geminga.broker.rest.calls.routing import DOMAIN
from geminga.broker.rest.message_routes.consumers import HttpConsumers
from geminga.broker.rest.message_routes.publishing import Outlets

#: Seconds without taking anything after which what is read ahead for a live tail is given up, where others wait for it.
STUCK_S: Final = 5.0

if TYPE_CHECKING:
    from geminga.broker.ownership.ports import Ownership
    from geminga.model.topic_name import TopicName

#: Path of a topic whose messages are meant.
MESSAGES_PATH: Final = f"/topics/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}"


class MessageDoors:
    """Of one broker; what is in it goes with whom it belongs to."""

    __slots__ = ("consumers", "next_partition", "outlets", "stuck", "tails", "waiting")

    def __init__(self, limits: MessageLimits) -> None:
        self.outlets = Outlets()
        self.consumers = HttpConsumers(limits.consumers)
        self.tails = Places(limits.tails, "{} live tails are open (gemingaHttpTailsMax); try again later")
        #: Requests that last: tails, and those that wait for messages.
        self.waiting = Places(
            limits.waiting, "{} requests wait for messages, half of maxConcurrentHttpRequests; try again later"
        )
        #: What is being written to a client, since when, and what gives up what is read ahead for it.
        self.stuck: dict[Callable[[], None], float] = {}
        #: Where the next message without a key goes, counted over all topics.
        self.next_partition = 0

    def make_room(self, now_s: float) -> None:
        """Where there is none for what is read: those that hold some and do not take it make it."""
        self.consumers.make_room()
        for give_up, since_s in [*self.stuck.items()]:
            if self.consumers.room.has_room or now_s - since_s < STUCK_S:
                return
            give_up()


def doors_of(request: Request) -> MessageDoors:
    """Of the broker that serves the request."""
    state = request.app.state
    found: MessageDoors | None = getattr(state, "message_doors", None)
    if found is None:
        found = state.message_doors = MessageDoors(context_of(request).message_limits)
    return found


class Places:
    """So many of something at a time."""

    __slots__ = ("_most", "_refusal", "taken")

    def __init__(self, most: int, refusal: str) -> None:
        """``refusal``: what is said where all are taken; ``{}`` is how many there are."""
        self._most = most
        self._refusal = refusal
        self.taken = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One is taken; raises RestError (429) where there is none."""
        if self.taken >= self._most:
            raise RestError(429, self._refusal.format(self._most))
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


async def until_gone(receive: Receive, then: Callable[[], None]) -> None:
    """Call ``then`` when who asks has closed the connection; the request's body is read, or thrown away."""
    is_whole = False
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            then()
            return
        if is_whole:
            return  # a server that never tells
        is_whole = not message.get("more_body", False)


def ownership_of(request: Request) -> Ownership:
    """Of the broker that serves the request."""
    return context_of(request).ownership


async def topic_with_owner(request: Request) -> TopicName | None:
    """The topic that the path names; None: it has partitions, which are everybody's. Made where policies say so."""
    name = topic_of(request)
    return None if await context_of(request).topics.registry.partitioned_count(name, create=True) else name


async def present_topic(request: Request) -> TopicName | None:
    """The same; none is made."""
    name = topic_of(request)
    return None if await context_of(request).topics.registry.partitioned_count(name) else name


def peer_of(request: Request) -> str:
    """``/address:port`` of who asks, as Pulsar prints it."""
    client = request.client
    return "/unknown" if client is None else f"/{client.host}:{client.port}"


async def whole_body(request: Request) -> Json:
    """The body as JSON; raises RestError for none (400), and for one that is compressed (415)."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RestError(415, f"Content-Encoding {encoding} is not taken: send the body as it is")
    return await required_body(request, None)
