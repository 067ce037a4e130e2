"""What kazoo asks of its surroundings: which connections can be read now."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from kazoo import exceptions as zk

from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.zookeeper.connection import ZooKeeperConnection, answer_within_s
from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox, Kazoo, KazooHandler
from geminga.metadata.zookeeper.requests import Requests
from geminga.runtime import next_turn, spawn


class Buffering(socket.socket):
    """As a connection with TLS: it has read from the kernel more than it gave."""

    kept = 0

    def pending(self) -> int:
        return self.kept


def test_what_tls_has_read_already_is_readable_at_once() -> None:
    here, there = socket.socketpair()
    with here, there, Buffering(fileno=here.detach()) as secured:
        handler = KazooHandler(None, 1.0)
        requests, waker = socket.socketpair()
        with requests, waker:
            assert handler.select([secured, requests], [], [], 0) == ([], [], [])
            secured.kept = 5
            # Without an end of the wait: it would stand until the server says something more.
            assert handler.select([secured, requests], [], [], None)[0] == [secured]
            waker.send(b"1")
            assert handler.select([secured, requests], [], [], None)[0] == [secured, requests]
            secured.kept = 0
            assert handler.select([secured, requests], [], [], None)[0] == [requests]
            there.send(b"x")
            assert handler.select([secured], [secured], [], None) == ([secured], [secured], [])


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_NONAME, "unknown"), UnicodeError("label too long")])
def test_a_name_without_an_address_is_why_nothing_was_reached(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "not reached within 30 s" and no more: kazoo connects to nothing then, or its thread ends."""

    def unknown(*_: object) -> list[object]:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    address = ZooKeeperAddress(("zk1.nowhere:2181", "zk2.nowhere:2182"))

    async def main() -> None:
        inbox = Inbox(asyncio.get_running_loop())
        connection = ZooKeeperConnection(
            address, 30_000, inbox, on_state=lambda *_: None, on_event=lambda *_, **__: None
        )
        assert connection.last_failure == ""
        assert connection._client._connection._expand_client_hosts() == []
        assert connection.last_failure == "zk1.nowhere, zk2.nowhere: no address is known of this name"

    asyncio.run(main())


def test_a_read_that_nobody_waits_for_is_not_asked_again() -> None:
    async def main() -> None:
        sent: list[tuple[Kazoo, AsyncResult]] = []

        def submit(group: Sequence[tuple[Kazoo, AsyncResult]]) -> None:
            sent.extend(group)

        async def turns() -> list[Kazoo]:
            for _ in range(5):
                await next_turn()
            found = [payload for payload, _ in sent]
            for _, answer in sent:
                answer.set_exception(zk.ConnectionLoss())
            sent.clear()
            for _ in range(5):
                await next_turn()
            return found

        requests = Requests(Inbox(asyncio.get_running_loop()), submit)
        requests.connected("first")
        asked = [spawn(requests.ask(name, name, is_write=False), name=name) for name in ("kept", "left")]
        assert await turns() == ["first", "kept", "left"]
        asked[1].cancel()
        await next_turn()
        later = spawn(requests.ask("later", "later", is_write=False), name="later")
        await next_turn()
        later.cancel()
        await next_turn()
        requests.connected("again")
        assert await turns() == ["again", "kept"]
        asked[0].cancel()
        await asyncio.wait([*asked, later])

    asyncio.run(main())


@pytest.mark.parametrize(("session_s", "hosts", "within_s"), [(30, 1, 10), (30, 5, 2), (4, 5, 1), (0.4, 1, 1)])
def test_every_server_is_tried_in_what_silence_leaves_of_the_session(
    session_s: float, hosts: int, within_s: float
) -> None:
    assert answer_within_s(session_s, hosts) == within_s
