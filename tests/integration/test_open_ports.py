"""A port that is open is served: whoever connects the moment it opens finds topics, and is never sent away."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.free_ports import free_ports
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.raw_protocol import RawConnection, frame, producer_frame

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/at-once"
LIMIT_S = 60.0


def first_answer(ask: Callable[[], str]) -> str:
    """What the first attempt is answered that is not refused by the kernel."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            return ask()
        except ConnectionRefusedError:
            continue
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))
    return "no port was opened"


def looked_up(port: int) -> str:
    with RawConnection(port, timeout_s=LIMIT_S) as connection:
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.topic = TOPIC
        command.lookupTopic.request_id = 1
        connection.send(frame(command))
        answer = connection.expect(pb.BaseCommand.LOOKUP_RESPONSE).lookupTopicResponse
        return pb.CommandLookupTopicResponse.LookupType.Name(answer.response) + answer.message


def produced(port: int) -> str:
    with RawConnection(port, timeout_s=LIMIT_S) as connection:
        connection.send(producer_frame(TOPIC))
        answer = connection.receive()
        return pb.BaseCommand.Type.Name(answer.type) + answer.error.message if answer is not None else "closed"


def asked_over_http(port: int, path: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received.partition(b"\r\n")[0].decode()


def test_first_connection_that_is_taken_is_served(tmp_path) -> None:
    broker_port, web_port = free_ports(2)
    process = StandaloneProcess(
        tmp_path / "data", log=tmp_path / "broker.log", broker_port=broker_port, web_port=web_port
    )
    asks = {
        "lookup": lambda: looked_up(broker_port),
        "produce": lambda: produced(broker_port),
        "namespace": lambda: asked_over_http(web_port, b"/admin/v2/namespaces/public/default"),
        "lookup over HTTP": lambda: asked_over_http(web_port, b"/lookup/v2/topic/persistent/public/default/at-once"),
    }
    served = {
        "lookup": "Connect",
        "produce": "PRODUCER_SUCCESS",
        "namespace": "HTTP/1.1 200 OK",
        "lookup over HTTP": "HTTP/1.1 200 OK",
    }
    # A new directory, and one that has everything.
    for _ in range(2):
        with ThreadPoolExecutor(len(asks)) as threads:
            process.launch()
            answers = {name: threads.submit(first_answer, ask) for name, ask in asks.items()}
            assert {name: answer.result() for name, answer in answers.items()} == served
        process.kill()
