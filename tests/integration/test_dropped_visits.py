"""WebSockets, pages of the console, messages over HTTP and connections of a proxy that are dropped leave nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from struct import pack
from urllib.parse import urlsplit

import pytest

import geminga
import geminga.client as gc
from geminga.client import blocking
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.processes.dropped_connections import (
    COUNTS,
    LOOPS_IN_TURN,
    PART_BYTES,
    Drop,
    assert_nothing_left,
    sent,
    to_port,
    until_quiet,
)
from support.processes.raw_protocol import RawConnection, frame, producer_frame
from support.processes.served_proxy import ServedProxy
from support.processes.web_sockets import text_frame, upgraded

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/visited"
PATH = TOPIC.replace("://", "/")
#: What is there to be read: more than ``recent_candidates`` remembers of, and little for other caches.
MESSAGE_BYTES = 70_000


@pytest.fixture(autouse=True)
def without_a_log() -> Iterator[None]:
    """What pytest keeps of it is no leftover."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module", params=LOOPS_IN_TURN)
def broker(request: pytest.FixtureRequest) -> Iterator[geminga.Standalone]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with geminga.Standalone(config={"gemingaEventLoop": request.param}) as running:
        with blocking.connect(running.service_url) as client, client.create_producer(TOPIC) as producer:
            producer.send(os.urandom(MESSAGE_BYTES))
            client.subscribe(TOPIC, "s", consumer_type=gc.ConsumerType.Shared).close()
        yield running


# ---- WebSockets


PUBLISHED = text_frame(json.dumps({"payload": base64.b64encode(b"m").decode()}).encode())
#: By kind: where, and what is sent there.
#: Where nothing is stored: what is, is there afterwards.
UNSTORED = PATH.replace("persistent", "non-persistent", 1)
SOCKETS = {
    "a producer": (f"/ws/v2/producer/{PATH}-a", b""),
    "a receipt that is not read": (f"/ws/v2/producer/{UNSTORED}-a", PUBLISHED),
    "half a message": (f"/ws/v2/producer/{PATH}-a", text_frame(b"x" * PART_BYTES, size_bytes=900_000)),
    "no frame": (f"/ws/v2/producer/{PATH}-a", b"\xff" * 500),
    "a consumer that reads nothing": (f"/ws/v2/consumer/{PATH}/s?subscriptionType=Shared", b""),
    "a reader that reads nothing": (f"/ws/v2/reader/{PATH}?messageId=earliest", b""),
}


@pytest.mark.parametrize(
    ("path", "data"), sampled("dropped sockets", SOCKETS.values(), 2, ids=[*SOCKETS], are_rows=True)
)
@pytest.mark.parametrize("count", COUNTS)
def test_of_web_sockets(broker: geminga.Standalone, path: str, data: bytes, count: int) -> None:
    def half_use() -> Drop:
        return sent(upgraded(broker.web_port, path), data)

    assert_nothing_left(half_use, lambda: until_quiet(broker._call), count)


# ---- requests for pages, and for messages

JSON_TYPE = "Content-Type: application/json\r\n"
REQUESTS = {
    "a page that is not read": b"GET /console/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a form": b"POST /console/topics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 900\r\n\r\nname=",
    "messages on a page": f"GET /console/topics/{PATH}/messages HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    "half of what is published": f"POST /topics/{PATH}-a HTTP/1.1\r\nHost: localhost\r\n{JSON_TYPE}"
    "Content-Length: 900000\r\n\r\n".encode()
    + b" " * 200_000,
    "a tail that is not read": f"GET /topics/{PATH}/tail?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    "a tail that has nothing": f"GET /topics/{PATH}-b/tail HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
}


@pytest.mark.parametrize("data", sampled("dropped requests", REQUESTS.values(), 2, ids=[*REQUESTS]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_pages_and_messages(broker: geminga.Standalone, data: bytes, count: int) -> None:
    for first in ("/console/", "/console/topics"):
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(broker.web_service_url + first).read()
    assert_nothing_left(partial(to_port, broker.web_port, data), lambda: until_quiet(broker._call), count)


@pytest.mark.parametrize("count", COUNTS)
def test_of_messages_that_are_waited_for(broker: geminga.Standalone, count: int) -> None:
    """A consumer over HTTP that stays, and whose requests are dropped one after the other."""
    base = f"/topics/{PATH}-c/subscriptions/s/consumers"
    request = urllib.request.Request(broker.web_service_url + base, data=b"{}", method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        consumer = json.loads(answer.read())["consumer"]
    asked = f"POST {base}/{consumer}/receive?waitMs=60000 HTTP/1.1\r\nHost: localhost\r\n{JSON_TYPE}"
    asked += "Content-Length: 0\r\n\r\n"
    half_use = partial(to_port, broker.web_port, asked.encode())
    assert_nothing_left(half_use, lambda: until_quiet(broker._call), count)


# ---- a proxy


@pytest.fixture(scope="module")
def proxy(broker: geminga.Standalone) -> Iterator[ServedProxy]:
    urls = (f"brokerServiceURL={broker.service_url}", f"brokerWebServiceURL={broker.web_service_url}")
    with ServedProxy(*urls, "brokerProxyAllowedTargetPorts=*") as running:
        yield running


def through(proxy: ServedProxy, broker: geminga.Standalone) -> RawConnection:
    """A connection that the proxy passes on."""
    raw = RawConnection(proxy.ports.port, handshake=False)
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version, command.connect.protocol_version = "raw", 20
    command.connect.proxy_to_broker_url = urlsplit(broker.service_url).netloc
    raw.send(frame(command))
    raw.expect(pb.BaseCommand.CONNECTED)
    return raw


def with_half_a_message(proxy: ServedProxy, broker: geminga.Standalone) -> Drop:
    raw = through(proxy, broker)
    raw.send(producer_frame(f"{TOPIC}-a"))
    raw.expect(pb.BaseCommand.PRODUCER_SUCCESS)
    return sent(raw.socket, pack(">II", 5_000_000, 20) + b"k" * PART_BYTES)


def with_lookups(proxy: ServedProxy, broker: geminga.Standalone) -> Drop:
    """That nobody reads; the proxy asks a broker each."""
    raw = RawConnection(proxy.ports.port)
    asked = bytearray()
    for number in range(10):
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.topic, command.lookupTopic.request_id = TOPIC, number
        asked += frame(command)
    return sent(raw.socket, bytes(asked))


PROXY_USES: dict[str, Callable[[ServedProxy, geminga.Standalone], Drop]] = {
    "nothing": lambda proxy, _: to_port(proxy.ports.port, b""),
    "half a connect": lambda proxy, _: to_port(proxy.ports.port, pack(">II", 2000, 1000) + b"x" * 500),
    "lookups": with_lookups,
    "passed on": lambda proxy, broker: through(proxy, broker).close,
    "half a message": with_half_a_message,
    "half the headers": lambda proxy, _: to_port(proxy.ports.web, b"GET /admin/v2/clusters HTTP/1.1\r\nHost: l"),
    "half a body": lambda proxy, _: to_port(
        proxy.ports.web,
        b"PUT /admin/v2/clusters/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b"x" * 200_000,
    ),
    "an answer that is not read": lambda proxy, _: to_port(
        proxy.ports.web, b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ),
}


@pytest.mark.parametrize("use", sampled("dropped proxy uses", PROXY_USES.values(), 3, ids=[*PROXY_USES]))
@pytest.mark.parametrize("count", COUNTS)
def test_of_a_proxy(
    proxy: ServedProxy,
    broker: geminga.Standalone,
    use: Callable[[ServedProxy, geminga.Standalone], Drop],
    count: int,
) -> None:
    def settle() -> None:
        until_quiet(proxy.run)
        until_quiet(broker._call)

    assert_nothing_left(partial(use, proxy, broker), settle, count)
