"""The HTTP server: bytes that are no HTTP, connections that stay."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from geminga import Standalone
from support.rest import Rest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""])
def test_bytes_that_are_no_http_close_the_connection(broker, rest: Rest, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.web_port), timeout=10) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert not received or received.startswith(b"HTTP/1.1 4")
    assert rest.get("brokers/health").status == 200


def test_connection_is_kept_for_several_requests(broker) -> None:
    request = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", broker.web_port), timeout=10) as connection:
        connection.sendall(request * 3)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b'["standalone"]'):
            chunk = connection.recv(4096)
            assert chunk
            received += chunk


def test_connections_that_come_before_the_software_are_all_served() -> None:
    request = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with Standalone() as broker:
        address = ("127.0.0.1", broker.web_port)
        early = [socket.create_connection(address, timeout=20) for _ in range(8)]
        early.pop().close()
        for connection in early:
            connection.sendall(request)
        for connection in early:
            received = b""
            while chunk := connection.recv(4096):
                received += chunk
            assert received.endswith(b'["standalone"]')
            connection.close()


def test_software_is_loaded_with_the_first_connection_only() -> None:
    code = (
        "import sys, urllib.request, geminga\n"
        "with geminga.Standalone() as broker:\n"
        "    before = 'starlette' in sys.modules or 'uvicorn' in sys.modules\n"
        "    urllib.request.urlopen(broker.web_service_url + '/metrics').read()\n"
        "    print(before, 'starlette' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "False True\n"
