"""The client where clients hurt: forked processes, running loops, web handlers, cancellation, exit without close."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import geminga
from geminga.client import Client, Producer, blocking, connect
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.house.waiting import turns
from support.worlds.scripted_broker import Scripted, polite

SOURCE = Path(geminga.__file__).resolve().parents[1]


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


class Deaf(Scripted):
    """Answers as a broker does until there is a producer; after that it reads nothing any more."""

    def __init__(self, all_of_them: list[Deaf]) -> None:
        super().__init__(self.answer)
        all_of_them.append(self)

    def answer(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == pb.BaseCommand.LOOKUP:
            host, port = self.transport.get_extra_info("sockname")
            url = f"pulsar://{host}:{port}"
            return [commands.lookup_connect(command.lookupTopic.request_id, url, "", is_authoritative=True)]
        if command.type == pb.BaseCommand.PRODUCER:
            self.transport.pause_reading()
        return polite(command)


def test_close_with_a_broker_that_does_not_read_leaves_no_socket_open() -> None:
    """What can not be written would keep the transport open beyond the end of its loop."""

    async def main() -> int:
        servers: list[Deaf] = []
        server = await asyncio.get_running_loop().create_server(lambda: Deaf(servers), "127.0.0.1", 0)
        url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = connect(url, operation_timeout_ms=500)
        producer = await client.create_producer("deaf", batching_enabled=False, send_timeout_millis=0)
        for _ in range(5):
            producer.send_nowait(bytes(4_000_000))
        await turns(5)
        pending = producer.pending_messages
        (connection,) = client.pool._connections.values()
        await client.close()
        assert connection.gone.is_set()
        server.close()
        for one in servers:
            one.transport.abort()
        await turns(3)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []
        return pending

    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert asyncio.run(main()) == 5
        gc.collect()
    assert [str(one.message) for one in caught] == []


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


def test_handler_whose_request_is_called_off_leaves_the_producer_to_the_others(broker) -> None:
    """A server cancels the handler when the browser goes away; the client lives as long as the app."""

    async def publish(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(await request.app.state.producer.send(await request.body())))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with connect(broker.service_url) as client:
            app.state.producer = await client.create_producer("web-gone")
            yield
            app.state.pending = app.state.producer.pending_messages

    async def serve() -> None:
        app = Starlette(routes=[Route("/", publish, methods=["POST"])], lifespan=lifespan)
        async with app.router.lifespan_context(app), connect(broker.service_url) as client:
            consumer = await client.subscribe("web-gone", "s")
            for rounds in range(20):
                gone = asyncio.ensure_future(post(app, b"gone"))
                await turns(rounds)
                gone.cancel()
                await asyncio.wait([gone])
            answers = await asyncio.gather(*(post(app, b"here") for _ in range(20)))
            assert len(set(answers)) == 20
            heres = 0
            while heres < 20:
                heres += (await consumer.receive(5_000)).data() == b"here"
        assert app.state.pending == 0

    asyncio.run(serve())


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel, and see that it ends."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


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
