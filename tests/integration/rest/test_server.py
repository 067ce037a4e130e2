"""The HTTP server: bytes that are no HTTP, connections that stay."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from geminga import Standalone
from support.house.python_programs import run_python
from support.worlds.rest import Rest

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
    request = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", broker.web_port), timeout=10) as connection:
        connection.sendall(request * 3)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b'["standalone"]'):
            chunk = connection.recv(4096)
            assert chunk
            received += chunk


def test_connections_that_come_before_the_software_are_all_served() -> None:
    request = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
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
    result = run_python(code)
    assert result.stdout == "False True\n"


def asked(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Status and reason; the headers are all that is sent, but for the length."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{port}", "Content-Length": "0", **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body)["reason"] if answer.status >= 400 else body.decode()
    finally:
        connection.close()


def test_page_of_a_stranger_changes_nothing_and_a_rebound_name_reads_nothing() -> None:
    evil = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    topic = "/admin/v2/persistent/public/default/made"
    settings = {
        "gemingaHttpAllowedHosts": "console.example",
        "allowAutoTopicCreationType": "partitioned",
        "defaultNumPartitions": 2,
    }
    with Standalone(config=settings) as broker:
        port = broker.web_port
        for method, path in (
            ("POST", "/admin/v2/brokers/shutdown"),
            ("POST", "/admin/v2/namespaces/public/default/clearBacklog"),
            ("POST", "/admin/v2/namespaces/public/default/unsubscribe/s"),
            ("PUT", topic),
            ("GET", f"{topic}/partitions?checkAllowAutoCreation=true"),
        ):
            status, reason = asked(port, method, path, evil)
            assert status == 403, path
            assert "may not" in reason
        partitioned = "/admin/v2/persistent/public/default/partitioned"
        assert asked(port, "GET", partitioned, evil) == (200, "[]")
        # What official clients ask still creates.
        assert asked(port, "GET", f"{topic}/partitions?checkAllowAutoCreation=true", {})[0] == 200
        assert "made" in asked(port, "GET", partitioned, {})[1]
        status, reason = asked(port, "GET", "/admin/v2/tenants", {"Host": f"evil.example:{port}"})
        assert (status, "evil.example" in reason) == (403, True)
        assert asked(port, "GET", "/metrics", {"Host": "evil.example"})[0] == 403
        for host in ("localhost", "127.0.0.1:1", "[::1]", "console.example:80", socket.gethostname()):
            assert asked(port, "GET", "/admin/v2/tenants", {"Host": host})[0] == 200, host
