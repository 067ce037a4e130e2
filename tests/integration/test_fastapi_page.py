"""docs/fastapi.md: its blocks run as they stand; those of the larger service stand in it."""

from __future__ import annotations

import asyncio
import re
from types import ModuleType
from typing import Any

import httpx
import pytest

import geminga.client as gc
from support.house.page_blocks import blocks_of
from support.house.source_tree import ROOT

pytestmark = [
    pytest.mark.integration,
    # Starlette's test client asks for a package that FastAPI's users have not had so far; it works with this one.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

PAGE = (ROOT / "docs" / "fastapi.md").read_text(encoding="utf-8")
EXAMPLE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "fastapi_orders").glob("*.py"))
URL = "pulsar://localhost:6650"
#: Frameworks that are not in the lock: what is shown of them is compiled, no more.
ABSENT = ("from litestar",)


@pytest.fixture
def blocks(broker) -> dict[str, list[str]]:
    """Section -> its Python blocks, at the broker of the test."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        found[title] = [b.text.replace(URL, broker.service_url) for b in blocks_of(section) if b.kind == "python"]
    return found


def names_of(*texts: str) -> dict[str, Any]:
    """What a module of these blocks has. They name types in annotations, which are looked for there."""
    module = ModuleType("fastapi_page")
    for text in texts:
        exec(compile(text, "fastapi.md", "exec", dont_inherit=True), vars(module))
    return vars(module)


async def messages(url: str, topic: str) -> list[bytes]:
    """All of a topic."""
    found = []
    async with gc.connect(url) as client, client.create_reader(topic, gc.MessageId.earliest) as reader:
        while await reader.has_message_available():
            found.append((await reader.read_next(5_000)).data())
    return found


def test_the_smallest_service_and_its_test_run_as_they_stand(blocks, broker, monkeypatch) -> None:
    names = names_of(*blocks["The smallest service"])
    names["test_greeting_is_stored"](broker.service_url, monkeypatch)
    assert asyncio.run(messages(broker.service_url, "greetings"))[-1] == b"hello"


def test_what_is_shown_of_the_larger_service_is_what_it_has(blocks) -> None:
    shown = blocks["Publishing"] + blocks["The worker"]
    assert len(shown) == 2
    assert [text for text in shown if text not in EXAMPLE] == []


def test_starlette_publishes(blocks, broker) -> None:
    from starlette.testclient import TestClient

    with TestClient(names_of(*blocks["Starlette"])["starlette_app"]) as browser:
        assert browser.post("/greetings", content=b"from starlette").status_code == 201
    assert asyncio.run(messages(broker.service_url, "greetings"))[-1] == b"from starlette"


def test_what_wraps_django_answers_a_lifespan_and_hands_requests_on(blocks, broker) -> None:
    """Any ASGI application stands for Django's, which knows only ``http``."""
    names = names_of(blocks["Django"][0])
    wrapper = names["WithProducer"]

    async def view(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await wrapper.producer.send(b"from django")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def story() -> None:
        application = wrapper(view, broker.service_url, "greetings")
        events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        said: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        life = asyncio.create_task(application({"type": "lifespan"}, events.get, said.put))
        await events.put({"type": "lifespan.startup"})
        assert await said.get() == {"type": "lifespan.startup.complete"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as browser:
            assert (await browser.get("/")).status_code == 204
        await events.put({"type": "lifespan.shutdown"})
        await life
        assert await said.get() == {"type": "lifespan.shutdown.complete"}
        assert wrapper.producer.is_connected() is False

    asyncio.run(story())
    assert asyncio.run(messages(broker.service_url, "greetings"))[-1] == b"from django"


def test_blocking_client_of_views_that_are_not_asynchronous(blocks, broker) -> None:
    names = names_of(blocks["Django"][1])
    names["greetings"]().send(b"again")  # the block sent one before, by the same producer
    names["client"]().close()
    assert asyncio.run(messages(broker.service_url, "greetings"))[-2:] == [b"hello", b"again"]


def test_service_of_asyncio_alone_hears_messages_and_stops(blocks, broker, capsys) -> None:
    names = names_of(*blocks["A service of asyncio alone"])

    async def story() -> None:
        async with gc.connect(broker.service_url) as client, client.create_producer("greetings") as producer:
            await producer.send(b"to be printed")
        stopping = asyncio.Event()

        def printed(message: bytes) -> None:
            if message == b"to be printed":
                stopping.set()

        names["print"] = printed
        async with asyncio.timeout(60):
            await names["main"](stopping)

    asyncio.run(story())


def test_every_block_is_python(blocks) -> None:
    count = 0
    for title, texts in blocks.items():
        for text in texts:
            count += 1
            if text[0].isspace():
                continue  # out of the middle of the example, which has it
            compile(text, title, "exec")
            if any(name in text for name in ABSENT):
                assert title == "Litestar"
    assert count == 9
