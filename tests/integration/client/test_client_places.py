"""The client where clients hurt: forked processes, running loops, web handlers, cancellation, exit without close."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import geminga
from geminga.client import Client, Producer, blocking, connect

SOURCE = Path(geminga.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    """In memory."""
    with geminga.Standalone() as standalone:
        yield standalone


def run_script(text: str, url: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """A Python program of its own; what it said, and the seconds it took."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(text), url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    return done, time.perf_counter() - started


FORK = """
import multiprocessing, sys, warnings
from geminga.client import ForkedProcess, blocking
warnings.simplefilter("ignore", DeprecationWarning)  # forking while threads run is what this is about

def in_child(client, producer, pipe):
    told = []
    for use in (lambda: producer.send(b"x"), lambda: producer.send_nowait(b"x"), producer.flush, producer.topic,
                lambda: client.create_producer("t"), client.close):
        try:
            use()
            told.append("nothing")
        except ForkedProcess:
            told.append("told")
    with blocking.connect(sys.argv[1]) as own:
        own.create_producer("forked").send(b"child")
    pipe.send(told)

client = blocking.connect(sys.argv[1])
producer = client.create_producer("forked")
consumer = client.subscribe("forked", "s")
producer.send(b"parent 1")
context = multiprocessing.get_context("fork")
here, there = context.Pipe()
children = [context.Process(target=in_child, args=(client, producer, there)) for _ in range(3)]
for child in children:
    child.start()
for child in children:
    assert here.poll(20)
    assert set(here.recv()) == {"told"}
    child.join(20)
    assert child.exitcode == 0
producer.send(b"parent 2")
received = sorted(consumer.receive(5000).data() for _ in range(5))
assert received == [b"child"] * 3 + [b"parent 1", b"parent 2"], received
client.close()
print("fine")
"""


def test_forked_children_are_told_and_work_with_clients_of_their_own(broker) -> None:
    done, _ = run_script(FORK, broker.service_url)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "fine", "")


BLOCKING_EXIT = """
import sys
from geminga.client import InitialPosition, blocking
client = blocking.connect(sys.argv[1])
producer = client.create_producer("left-open")
client.subscribe("left-open", "l", message_listener=lambda consumer, message: consumer.acknowledge(message))
consumer = client.subscribe("left-open", "s")
reader = client.create_table_view("left-open")
producer.send(b"x")
producer.send_nowait(b"y")
print(consumer.receive(5000).data())
"""

ASYNC_EXIT = """
import asyncio, sys
from geminga.client import connect
async def main():
    client = connect(sys.argv[1])
    producer = await client.create_producer("left-open-async")
    consumer = await client.subscribe("left-open-async", "s")
    await producer.send(b"x")
    producer.send_nowait(b"y")
    print((await consumer.receive(5000)).data())
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [BLOCKING_EXIT, ASYNC_EXIT], ids=["blocking", "async"])
def test_exit_without_close_is_quick_and_quiet(broker, program) -> None:
    done, seconds = run_script(program, broker.service_url)
    said = [line for line in done.stderr.splitlines() if "ResourceWarning" not in line]
    assert (done.returncode, done.stdout.strip(), said) == (0, "b'x'", [])
    assert seconds < 10


def test_objects_live_on_from_one_cell_of_a_notebook_to_the_next(broker) -> None:
    cells: dict[str, object] = {}

    async def first() -> None:
        client = cells["client"] = connect(broker.service_url)
        cells["consumer"] = await client.subscribe("notebook", "s")
        cells["producer"] = await client.create_producer("notebook")

    async def second() -> bytes:
        producer, consumer = cells["producer"], cells["consumer"]
        await producer.send(b"cell")  # type: ignore[attr-defined]
        data: bytes = (await consumer.receive(5_000)).data()  # type: ignore[attr-defined]
        return data

    async def blocking_cell() -> bytes:
        # Blocking code in a cell, though the notebook's loop runs in this very thread.
        with blocking.connect(broker.service_url) as client, client.subscribe("notebook", "b") as consumer:
            client.create_producer("notebook").send(b"blocking")
            return consumer.receive(5_000).data()

    async def last() -> None:
        await cells["client"].close()  # type: ignore[attr-defined]

    with asyncio.Runner() as runner:
        runner.run(first())
        assert runner.run(second()) == b"cell"
        assert runner.run(blocking_cell()) == b"blocking"
        runner.run(last())


async def post(app: Starlette, body: bytes) -> bytes:
    """One request through the ASGI interface."""
    answer = bytearray()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message) -> None:
        answer.extend(message.get("body", b""))

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "http_version": "1.1"}
    await app(scope, receive, send)
    return bytes(answer)


def test_web_handlers_share_one_producer_on_the_servers_loop(broker) -> None:
    producers: list[Producer[bytes]] = []

    async def publish(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(await producers[0].send(await request.body())))

    async def serve() -> None:
        app = Starlette(routes=[Route("/", publish, methods=["POST"])])
        async with connect(broker.service_url) as client:
            consumer = await client.subscribe("web", "s")
            producers.append(await client.create_producer("web"))
            answers = await asyncio.gather(*(post(app, str(index).encode()) for index in range(100)))
            assert len(set(answers)) == 100
            received = {(await consumer.receive(5_000)).data() for _ in range(100)}
            assert received == {str(index).encode() for index in range(100)}

    asyncio.run(serve())


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel, and see that it ends."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def turns(count: int) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_cancelled_receive_loses_no_message(broker, rounds) -> None:
    async def work(client: Client) -> None:
        topic = f"cancelled-{rounds}"
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        waiting = asyncio.ensure_future(consumer.receive())
        await turns(rounds)
        await cancelled(waiting)
        sending = asyncio.ensure_future(producer.send(b"1"))
        await turns(max(1, rounds))
        await cancelled(sending)
        await producer.send(b"2")
        assert [(await consumer.receive(5_000)).data() for _ in range(2)] == [b"1", b"2"]

    async def connected() -> None:
        async with connect(broker.service_url) as client:
            await work(client)

    asyncio.run(connected())
