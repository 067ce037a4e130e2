"""The HTTP server: bytes that are no HTTP, connections that stay."""

from __future__ import annotations

import socket

import pytest

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
