"""The FastAPI service of examples/fastapi_orders, served by uvicorn on real sockets, on a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from examples.fastapi_orders import app as service
from examples.fastapi_orders import messaging, streaming
from examples.fastapi_orders.settings import Order, Settings

import geminga.client as gc
from geminga.client.schema import JsonSchema

pytestmark = pytest.mark.integration

ORDER = {"order_id": "o-1", "customer": "ada", "amount": "12.50"}
#: Whatever should happen at once is waited for so long.
SOON_S = 60.0


class Served(uvicorn.Server):
    """On a free port, in the test's own loop, without the signals of the process."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(app, port=0, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
        )
        self.is_up = asyncio.Event()
        self.has_tried = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.has_tried.set()

    @property
    def url(self) -> str:
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"


@asynccontextmanager
async def served(settings: Settings, handler: messaging.Handler | None = None) -> AsyncIterator[tuple[Served, Any]]:
    """The service and a browser; stopped at the end as by SIGTERM, with nothing left behind."""
    before = asyncio.all_tasks()
    server = Served(service.create_app(settings, handler))
    serving = asyncio.create_task(server._serve())
    await server.has_tried.wait()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=SOON_S) as browser:
            yield server, browser
            server.should_exit = True
            async with asyncio.timeout(SOON_S):
                await serving
    finally:
        server.should_exit = True
        await serving
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    assert left == set()


async def until_ready(browser: httpx.AsyncClient) -> None:
    """Producer and consumer are there; asks again with each answer, for the health says so and nothing else does."""
    async with asyncio.timeout(SOON_S):
        while (await browser.get("/health/ready")).status_code != 200:
            pass


def run(story: Awaitable[None]) -> None:
    asyncio.run(story)  # type: ignore[arg-type]


async def stored(settings: Settings) -> list[Order]:
    """Everything in the topic."""
    found = []
    async with (
        gc.connect(settings.service_url) as client,
        client.create_reader(settings.topic, gc.MessageId.earliest, schema=JsonSchema(Order)) as reader,
    ):
        while await reader.has_message_available():
            found.append((await reader.read_next(5_000)).value())
    return found


@pytest.fixture
def settings(broker, fresh_topic) -> Settings:
    return Settings(broker.service_url, fresh_topic)


def test_order_is_published_worked_off_and_found(settings, monkeypatch) -> None:
    monkeypatch.setattr(messaging, "STOP_S", 3600.0)  # a worker that waits for orders holds nothing up

    async def story() -> None:
        done = asyncio.Event()
        book = messaging.OrderBook()

        async def settle(order: Order) -> None:
            await book.settle(order)
            done.set()

        async with served(settings, settle) as (_, browser):
            await until_ready(browser)
            answer = await browser.post("/orders", json=ORDER)
            assert answer.status_code == 201
            assert answer.json()["order_id"] == "o-1"
            async with asyncio.timeout(SOON_S):
                await done.wait()
            assert book.find("o-1") == Order.model_validate(ORDER)
            assert (await browser.get("/orders/other")).status_code == 404
            refused = await browser.post("/orders", json={**ORDER, "amount": "-1"})
            assert refused.status_code == 422
        assert await stored(settings) == [Order.model_validate(ORDER)]

    run(story())


def test_service_stops_with_orders_in_flight_and_loses_none(settings, monkeypatch) -> None:
    """Each request that was answered 201 is stored once; the order at hand is finished, the others come again."""
    go_on = asyncio.Event()
    stop = messaging.Messaging.__aexit__

    async def stop_while_at_work(self: messaging.Messaging, *error: Any) -> None:
        asyncio.get_running_loop().call_soon(go_on.set)
        await stop(self, *error)

    monkeypatch.setattr(messaging.Messaging, "__aexit__", stop_while_at_work)

    async def story() -> None:
        begun: list[str] = []
        finished: list[str] = []
        at_work = asyncio.Event()

        async def slow(order: Order) -> None:
            begun.append(order.order_id)
            at_work.set()
            await go_on.wait()
            finished.append(order.order_id)

        async with served(settings, slow) as (server, browser):
            await until_ready(browser)
            posts = [
                asyncio.create_task(browser.post("/orders", json={**ORDER, "order_id": f"o-{number}"}))
                for number in range(30)
            ]
            await at_work.wait()
            server.should_exit = True
            answers = await asyncio.gather(*posts, return_exceptions=True)
        taken = sorted(a.json()["order_id"] for a in answers if isinstance(a, httpx.Response) and a.status_code == 201)
        assert taken
        assert begun == finished
        kept = await stored(settings)
        assert len({order.order_id for order in kept}) == len(kept)
        assert set(taken) <= {order.order_id for order in kept}

        again: list[str] = []
        all_there = asyncio.Event()

        async def quick(order: Order) -> None:
            again.append(order.order_id)
            if {*finished, *again} == {order.order_id for order in kept}:
                all_there.set()

        if {*finished} != {order.order_id for order in kept}:
            async with served(settings, quick), asyncio.timeout(SOON_S):
                await all_there.wait()
        assert not {*again} & {*finished}

    run(story())


def test_order_that_fails_comes_again_and_is_a_dead_letter_in_the_end(settings, monkeypatch) -> None:
    monkeypatch.setattr(messaging, "ATTEMPTS_MAX", 2)
    monkeypatch.setattr(messaging, "AGAIN_MS", 1)

    async def story() -> None:
        tried = 0

        async def failing(order: Order) -> None:
            nonlocal tried
            tried += 1
            raise OSError("the database is away")

        async with served(settings, failing) as (_, browser), gc.connect(settings.service_url) as client:
            letters = await client.subscribe(f"{settings.topic}-{settings.subscription}-DLQ", "watch")
            await until_ready(browser)
            assert (await browser.post("/orders", json=ORDER)).status_code == 201
            letter = await letters.receive(int(SOON_S * 1000))
            assert json.loads(letter.data())["order_id"] == "o-1"
            assert tried == 2

    run(story())


async def events(lines: AsyncIterator[str], count: int) -> list[dict[str, str]]:
    """The next ``count`` events of a stream."""
    found: list[dict[str, str]] = []
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            found.append(fields)
            fields = {}
            if len(found) == count:
                break
        else:
            fields = {}
    return found


async def post(browser: httpx.AsyncClient, *order_ids: str) -> None:
    for order_id in order_ids:
        assert (await browser.post("/orders", json={**ORDER, "order_id": order_id})).status_code == 201


def ids(found: list[dict[str, str]]) -> list[str]:
    return [json.loads(event["data"])["order_id"] for event in found]


def test_browser_hears_of_orders_goes_on_where_it_was_and_leaves_nothing(settings) -> None:
    async def story() -> None:
        async with served(settings) as (server, browser):
            await until_ready(browser)
            streams = server.config.app.state.streams
            async with browser.stream("GET", "/orders/stream") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                await post(browser, "o-1", "o-2")
                seen = await events(lines, 2)
                assert ids(seen) == ["o-1", "o-2"]
                assert streams.open == 1
                client = server.config.app.state.messaging.client
                parts = len(client.lifetime.others)
            await post(browser, "o-3")
            async with asyncio.timeout(SOON_S):
                while streams.open or len(client.lifetime.others) == parts:
                    await browser.get("/health/live")
            headers = {"Last-Event-ID": seen[0]["id"]}
            async with browser.stream("GET", "/orders/stream", headers=headers) as answer:
                assert ids(await events(answer.aiter_lines(), 2)) == ["o-2", "o-3"]
            refused = await browser.get("/orders/stream", headers={"Last-Event-ID": "none of ours"})
            assert refused.status_code == 400
            assert "expected the id of an event" in refused.json()["detail"]

    run(story())


def test_open_stream_does_not_hold_up_the_end_and_too_many_are_refused(settings, monkeypatch) -> None:
    monkeypatch.setattr(streaming, "STREAMS_MAX", 1)

    async def story() -> None:
        async with served(settings) as (server, browser):
            await until_ready(browser)
            async with browser.stream("GET", "/orders/stream") as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                refused = await browser.get("/orders/stream")
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                server.should_exit = True
                with suppress(httpx.HTTPError):  # cut, or ended: both end it
                    async for _ in lines:
                        pass
            assert server.config.app.state.streams.open == 0

    run(story())


def test_service_without_broker_starts_says_so_and_stops(settings, monkeypatch) -> None:
    monkeypatch.setattr(messaging, "RETRY_S", 60.0)

    async def story() -> None:
        async with served(Settings("pulsar://127.0.0.1:1", settings.topic)) as (_, browser):
            answer = await browser.get("/health/ready")
            assert answer.status_code == 503
            assert answer.json()["producer"] is False
            assert (await browser.get("/health/live")).status_code == 200
            answer = await browser.post("/orders", json=ORDER)
            assert answer.status_code == 503
            assert answer.json()["error"] == "NotReadyError"

    run(story())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (gc.Timeout("t"), 504),
        (gc.ProducerQueueIsFull("f"), 503),
        (gc.ServiceUnitNotReady("n"), 503),
        (gc.MessageTooBig("b"), 413),
        (gc.TopicTerminated("t"), 410),
        (gc.AuthorizationError("a"), 502),
        (gc.UnexpectedError("u"), 500),
        (messaging.NotReadyError("n"), 503),
    ],
)
def test_errors_have_their_status(error, status) -> None:
    assert service.status_of(error) == status
