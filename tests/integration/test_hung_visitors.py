"""Who comes by HTTP, a WebSocket or a proxy, or from another cluster, hangs under load: memory stays what it was.

``make hung LINK=sockets``; what else may hang is in ``test_hung_peers.py``.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import blocking
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.hung_peers import MESSAGE_BYTES, Load, Publishing, Soaked, soak, stopped
from support.processes.proxy_process import ProxyProcess
from support.processes.raw_protocol import RawConnection, frame
from support.processes.web_sockets import text_frame, upgraded

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("HUNG_S", "180"))
PATH = "persistent/public/default/under-load"
TOPIC = "persistent://public/default/under-load"
SETTINGS = {
    # Nothing is kept that nobody waits for, so that hours of it fit on a disk.
    "managedLedgerMaxEntriesPerLedger": 100,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    # A cache that fills because the disk is behind holds nothing for a peer.
    "dbStorage_writeCacheMaxSizeMb": 32,
}


def standalone(directory: Path, name: str = "standalone", **settings: object) -> StandaloneProcess:
    data = directory / name
    return StandaloneProcess(data, log=directory / f"{name}.log", settings={**SETTINGS, **settings})


def hanging(over: threading.Event, connect: Callable[[], socket.socket], *, floods: bytes = b"") -> Callable[[], None]:
    """Connects, sends ``floods`` as long as any of it is taken, and reads nothing until it is cut off, or ``over``."""

    def use() -> None:
        with connect() as sock:
            sock.settimeout(5)
            with suppress(TimeoutError):
                while floods:
                    sock.sendall(floods)
            is_there = 1  # ESTABLISHED
            while is_there == 1 and not over.wait(1):
                is_there = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]

    return use


Visits = Callable[[StandaloneProcess, threading.Event], Sequence[Callable[[], None]]]


def soaked(link: str, directory: Path, seconds: float, visits: Visits) -> Soaked:
    """``visits``: what hangs, each in a thread of its own again and again, while 24 MB/s are published."""
    over = threading.Event()
    with ExitStack() as stack:
        broker = stack.enter_context(standalone(directory))
        load = stack.enter_context(Publishing(broker.service_url, directory, [TOPIC]))
        hung = [stack.enter_context(Load(use, pause_s=1)) for use in visits(broker, over)]
        seen = soak(link, {"broker": broker.pid}, seconds, messages=load, others=hung)
        for one in hung:
            one.is_over.set()
        over.set()
        broker.kill()  # which ends what waits for answers
    return seen


def sockets_that_read_nothing(broker: StandaloneProcess, over: threading.Event, count: int) -> list[Callable[[], None]]:
    """Consumers, readers, and producers that take no receipts."""
    port, numbers = broker.web_port, itertools.count()
    published = text_frame(json.dumps({"payload": base64.b64encode(b"m" * 100).decode()}).encode()) * 100

    def consumer() -> socket.socket:
        return upgraded(port, f"/ws/v2/consumer/{PATH}/s{next(numbers)}?subscriptionMode=NonDurable")

    def puller() -> socket.socket:
        sock = upgraded(port, f"/ws/v2/consumer/{PATH}/p{next(numbers)}?pullMode=true&subscriptionMode=NonDurable")
        sock.sendall(text_frame(b'{"type":"permit","permitMessages":1000000}'))
        return sock

    def reader() -> socket.socket:
        return upgraded(port, f"/ws/v2/reader/{PATH}?messageId=earliest")

    def producer() -> socket.socket:
        return upgraded(port, "/ws/v2/producer/persistent/public/default/small?maxPendingMessages=10000")

    kinds = [
        hanging(over, consumer),
        hanging(over, puller),
        hanging(over, reader),
        hanging(over, producer, floods=published),
    ]
    return [kinds[number % len(kinds)] for number in range(count)]


def test_sockets_that_read_nothing(tmp_path: Path) -> None:
    link = "WebSockets that read nothing"
    soaked(link, tmp_path, SECONDS, lambda broker, over: sockets_that_read_nothing(broker, over, 48)).check(flows=True)


def tails_that_read_nothing(broker: StandaloneProcess, over: threading.Event, count: int) -> list[Callable[[], None]]:
    """Live tails, and consumers over HTTP whose answers are not read."""

    def asked(method: str, path: str) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", broker.web_port), timeout=30)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        return sock

    def tail() -> socket.socket:
        return asked("GET", f"/topics/{PATH}/tail?from=earliest")

    def receive() -> socket.socket:
        """As fast as consumers are made: each holds what it was sent until its lease is over."""
        consumers = f"/topics/{PATH}/subscriptions/http/consumers"
        request = urllib.request.Request(
            broker.web_url + consumers, b'{"type": "Shared"}', {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            made = json.loads(answer.read())["consumer"]
        return asked("POST", f"{consumers}/{made}/receive?max=1000&maxBytes=4000000&waitMs=10000")

    kinds = [hanging(over, tail), hanging(over, receive)]
    return [kinds[number % len(kinds)] for number in range(count)]


def test_tails_that_read_nothing(tmp_path: Path) -> None:
    link = "tails and receives over HTTP that are not read"
    soaked(
        link,
        tmp_path,
        SECONDS,
        lambda broker, over: tails_that_read_nothing(broker, over, 100),
    ).check(flows=True)


# ---- through a proxy


def behind(proxy: ProxyProcess, broker: StandaloneProcess) -> RawConnection:
    """To the broker, by the proxy."""
    raw = RawConnection(proxy.port, handshake=False, timeout_s=30)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version, command.connect.protocol_version = "raw", 20
    command.connect.proxy_to_broker_url = broker.service_url.removeprefix("pulsar://")
    raw.send(frame(command))
    raw.expect(pb.BaseCommand.CONNECTED)
    return raw


def consumer_behind(proxy: ProxyProcess, broker: StandaloneProcess, subscription: str) -> socket.socket:
    """It wants everything and reads nothing."""
    raw = behind(proxy, broker)
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    subscribe = command.subscribe
    subscribe.topic, subscribe.subscription, subscribe.subType = TOPIC, subscription, pb.CommandSubscribe.Shared
    subscribe.consumer_id, subscribe.request_id, subscribe.durable = 1, 1, False
    raw.send(frame(command))
    raw.expect(pb.BaseCommand.SUCCESS)
    flow = pb.BaseCommand(type=pb.BaseCommand.FLOW)
    flow.flow.consumer_id, flow.flow.messagePermits = 1, 1_000_000
    raw.send(frame(flow))
    return raw.socket


def test_consumers_behind_a_proxy_that_do_not_read(tmp_path: Path) -> None:
    numbers = itertools.count()
    with standalone(tmp_path) as broker, ExitStack() as stack:
        proxy = stack.enter_context(ProxyProcess(broker, tmp_path))
        load = stack.enter_context(Publishing(proxy.url, tmp_path, [TOPIC]))
        over = threading.Event()
        stack.callback(over.set)
        use = hanging(over, lambda: consumer_behind(proxy, broker, f"s{next(numbers)}"))
        hung = stack.enter_context(Load(use, 24, pause_s=1))
        watched = {"proxy": proxy.pid, "broker": broker.pid}
        seen = soak("consumers behind a proxy that do not read", watched, SECONDS, messages=load, others=[hung])
        hung.is_over.set()
        over.set()
        proxy.kill()
    seen.check(flows=True)


def test_broker_behind_a_proxy_is_stopped(tmp_path: Path) -> None:
    """Who publishes to it sends as much as is taken, and who asks for lookups waits; another broker's clients go on."""
    big = frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()), b"x" * MESSAGE_BYTES)
    with standalone(tmp_path, "hung") as hung, standalone(tmp_path, "healthy") as healthy, ExitStack() as stack:
        proxy = stack.enter_context(ProxyProcess(healthy, tmp_path, also=[hung.broker_port]))
        load = stack.enter_context(Publishing(proxy.url, tmp_path, [TOPIC]))
        flooding = [behind(proxy, hung).socket for _ in range(24)]
        stack.enter_context(stopped(hung.pid))

        def flood() -> None:
            """The proxy waits for the broker's answer to CONNECT, or hands on what the broker does not take."""
            sock = flooding.pop() if flooding else socket.create_connection(("127.0.0.1", proxy.port), timeout=30)
            with sock, suppress(TimeoutError):
                sock.settimeout(10)
                command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
                command.connect.client_version, command.connect.protocol_version = "raw", 20
                command.connect.proxy_to_broker_url = hung.service_url.removeprefix("pulsar://")
                sock.sendall(frame(command))
                while True:
                    sock.sendall(big)

        other = stack.enter_context(Load(flood, 48, pause_s=0.5))
        watched = {"proxy": proxy.pid, "broker": healthy.pid}
        seen = soak("a broker behind a proxy is stopped", watched, SECONDS, messages=load, others=[other])
        other.is_over.set()
        proxy.kill()
    seen.check(flows=True)


# ---- other clusters


def ask(broker: StandaloneProcess, method: str, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"{broker.web_url}/admin/v2/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status in (200, 204)


def test_other_cluster_that_is_stopped(tmp_path: Path) -> None:
    """Everything is kept for it on disk."""
    with (
        standalone(tmp_path, "east", clusterName="east") as east,
        standalone(tmp_path, "west", clusterName="west") as west,
    ):
        for one, other, name in ((east, west, "west"), (west, east, "east")):
            ask(one, "PUT", f"clusters/{name}", {"serviceUrl": other.web_url, "brokerServiceUrl": other.service_url})
            ask(one, "POST", "tenants/public", {"allowedClusters": ["east", "west"]})
            ask(one, "POST", "namespaces/public/default/replication", ["east", "west"])
        with blocking.connect(east.service_url) as client:
            for number in range(16):
                client.create_producer(f"{TOPIC}-{number}").send(b"first")
        topics = [f"{TOPIC}-{number}" for number in range(16)]
        with Publishing(east.service_url, tmp_path, topics) as load, stopped(west.pid):
            seen = soak("another cluster is stopped", {"east": east.pid}, SECONDS, messages=load)
    seen.check(flows=True)
