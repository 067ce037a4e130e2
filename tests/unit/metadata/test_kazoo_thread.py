"""What kazoo asks of its surroundings: which connections can be read now."""

from __future__ import annotations

import socket

from geminga.metadata.zookeeper.kazoo_thread import KazooHandler


class Buffering(socket.socket):
    """As a connection with TLS: it has read from the kernel more than it gave."""

    kept = 0

    def pending(self) -> int:
        return self.kept


def test_what_tls_has_read_already_is_readable_at_once() -> None:
    here, there = socket.socketpair()
    with here, there, Buffering(fileno=here.detach()) as secured:
        handler = KazooHandler(None)
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
