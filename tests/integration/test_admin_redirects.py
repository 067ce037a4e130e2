"""Admin commands follow a broker to who serves the topic, whatever the method."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from geminga.admin._http import REDIRECTS_MAX
from geminga.app.commands import admin_commands
from geminga.model.errors import UnavailableError

pytestmark = pytest.mark.integration


@contextmanager
def brokers(heard: list[tuple[str, str]], *, ends: bool) -> Iterator[str]:
    """Sends ``/admin`` on to ``/served``, which answers, or is sent on without end."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            heard.append((self.path, body))
            served = ends and self.path == "/served"
            self.send_response(200 if served else 307)
            if not served:
                self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/served")
            self.send_header("Content-Length", "2" if served else "0")
            self.end_headers()
            if served:
                self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_what_another_broker_serves_is_asked_there_with_its_body() -> None:
    heard: list[tuple[str, str]] = []
    with brokers(heard, ends=True) as url:
        assert admin_commands.ask(url, "/admin", "PUT", {"a": 1}) == []
    assert heard == [("/admin", '{"a": 1}'), ("/served", '{"a": 1}')]


def test_brokers_that_send_on_without_end_are_an_error() -> None:
    heard: list[tuple[str, str]] = []
    with brokers(heard, ends=False) as url, pytest.raises(UnavailableError, match="sent on more than"):
        admin_commands.ask(url, "/admin", "PUT")
    assert len(heard) == REDIRECTS_MAX
