"""What requests about messages share: what is kept between them, made with the first; names; bodies."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from geminga.broker.core.coercion import Json
from geminga.broker.rest.calls.requests import NO_BODY, RestError, json_body
from geminga.broker.rest.calls.routing import DOMAIN
from geminga.broker.rest.message_routes.publishing import Outlets

#: Path of a topic whose messages are meant.
MESSAGES_PATH: Final = f"/topics/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}"


class MessageDoors:
    """Of one broker; what is in it goes with whom it belongs to."""

    __slots__ = ("next_partition", "outlets")

    def __init__(self) -> None:
        self.outlets = Outlets()
        #: Where the next message without a key goes, counted over all topics.
        self.next_partition = 0


def doors_of(request: Request) -> MessageDoors:
    """Of the broker that serves the request."""
    state = request.app.state
    found: MessageDoors | None = getattr(state, "message_doors", None)
    if found is None:
        found = state.message_doors = MessageDoors()
    return found


def peer_of(request: Request) -> str:
    """``/address:port`` of who asks, as Pulsar prints it."""
    client = request.client
    return "/unknown" if client is None else f"/{client.host}:{client.port}"


async def whole_body(request: Request) -> Json:
    """The body as JSON; raises RestError for none (400), and for one that is compressed (415)."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RestError(415, f"Content-Encoding {encoding} is not taken: send the body as it is")
    body = await json_body(request)
    if body is None:
        raise RestError(400, NO_BODY)
    return body
