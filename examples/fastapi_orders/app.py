"""The application: its lifespan, its routes, and which status each error of the client becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from geminga.client import (
    AuthenticationError,
    AuthorizationError,
    IncompatibleSchema,
    InvalidMessage,
    MessageTooBig,
    Producer,
    ProducerFenced,
    PulsarException,
    Timeout,
    TopicTerminated,
)

from .messaging import Handler, Messaging, NotReadyError, OrderBook
from .settings import Order, Settings
from .streaming import BadEventIdError, OrderStreams, TooManyStreamsError

#: Error -> status. What is not here: 503 if the same may succeed later, else 500.
STATUSES: Final[dict[type[Exception], int]] = {
    BadEventIdError: 400,
    MessageTooBig: 413,
    InvalidMessage: 422,
    TopicTerminated: 410,
    # The service's own credentials, schema or rights: nothing that the caller could mend.
    AuthenticationError: 502,
    AuthorizationError: 502,
    IncompatibleSchema: 502,
    ProducerFenced: 503,
    NotReadyError: 503,
    TooManyStreamsError: 503,
    # It may have been stored: the caller sends the same order id again, and it counts once.
    Timeout: 504,
}
#: What a caller is told to wait after 503, in seconds.
RETRY_AFTER_S: Final = 1


class Receipt(BaseModel):
    """Where an order lies in the topic; the answer of a publish."""

    order_id: str
    message_id: str


def status_of(error: Exception) -> int:
    """The status of HTTP for ``error``."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return 503 if getattr(error, "retriable", False) else 500


async def tell(request: Request, error: Exception) -> JSONResponse:
    """Of an error that a route raised."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return JSONResponse({"error": type(error).__name__, "detail": str(error)}, status, headers=headers)


def messaging_of(request: Request) -> Messaging:
    """A dependency: what the lifespan made."""
    messaging: Messaging = request.app.state.messaging
    return messaging


def producer_of(messaging: Annotated[Messaging, Depends(messaging_of)]) -> Producer[Order]:
    """A dependency: the service's producer, or 503."""
    return messaging.producer()


def create_app(settings: Settings | None = None, handler: Handler | None = None) -> FastAPI:
    """The application; ``handler`` works off an order, the order book unless a test gives its own."""
    book = OrderBook()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Messaging(settings or Settings.from_environment(), handler or book.settle) as messaging:
            app.state.messaging = messaging
            yield

    app = FastAPI(title="Orders", lifespan=lifespan)
    app.state.streams = OrderStreams()
    for kind in (PulsarException, NotReadyError, TooManyStreamsError, BadEventIdError):
        app.add_exception_handler(kind, tell)

    @app.post("/orders", status_code=201)
    async def publish(order: Order, producer: Annotated[Producer[Order], Depends(producer_of)]) -> Receipt:
        """Answers once the order is stored."""
        message_id = await producer.send(order, partition_key=order.customer)
        return Receipt(order_id=order.order_id, message_id=str(message_id))

    @app.get("/orders/stream")
    async def stream(
        request: Request,
        messaging: Annotated[Messaging, Depends(messaging_of)],
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        """Orders as they come, as server-sent events."""
        streams: OrderStreams = request.app.state.streams
        return await streams.response(messaging.client, messaging.settings.topic, last_event_id)

    @app.get("/orders/{order_id}")
    async def find(order_id: str) -> Order:
        """An order that was worked off."""
        found = book.find(order_id)
        if found is None:
            raise HTTPException(404, f"no order {order_id!r} was worked off here")
        return found

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """The process answers: a broker that is away is no reason to restart it."""
        return {"status": "ok"}

    @app.get("/health/ready")
    async def ready(response: Response, messaging: Annotated[Messaging, Depends(messaging_of)]) -> dict[str, object]:
        """Whether requests should come here."""
        if not messaging.is_ready:
            response.status_code = 503
        return messaging.health()

    return app


app = create_app()
