"""Admin commands follow a broker to who serves the topic, whatever the method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

import pytest

from geminga.admin._http import REDIRECTS_MAX
from geminga.app.commands import admin_commands
from geminga.model.errors import UnavailableError
from support.processes.web_answers import Answering, Served

pytestmark = pytest.mark.integration


@contextmanager
def brokers(heard: list[tuple[str, str]], *, ends: bool) -> Iterator[str]:
    """Sends ``/admin`` on to ``/served``, which answers, or is sent on without end."""

    class Handler(Answering):
        def do_PUT(self) -> None:
            heard.append((self.path, self.asked_body().decode()))
            if ends and self.path == "/served":
                self.answer(b"[]")
            else:
                self.answer(b"", status=307, headers={"Location": f"{server.url}/served"})

    with Served(HTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield server.url


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
