"""Sockets that a service manager made: which are taken, and what is no socket of that kind."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from geminga.runtime.sockets.inherited import InheritedSockets, inherited_sockets

FIRST = 700


@contextmanager
def passed(*sockets: socket.socket) -> Iterator[dict[str, str]]:
    """The variables, with the sockets at :data:`FIRST` and behind it."""
    with ExitStack() as stack:
        for number, sock in enumerate(sockets, FIRST):
            os.dup2(sock.fileno(), number)
            stack.callback(_close, number)
        yield {
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": str(len(sockets)),
            "LISTEN_FDNAMES": ":".join("x" for _ in sockets),
            "OTHER": "stays",
        }


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError:
        pass  # the one who took it closed it


def test_each_is_taken_once_by_who_listens_just_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [sock.getsockname() for sock in (one, other)]
        with passed(one, other) as environ:
            found = inherited_sockets(environ, FIRST)
            assert environ == {"OTHER": "stays"}
            assert found.addresses == sorted(addresses)
            assert found.take(("0.0.0.0", addresses[0][1])) is None
            taken = found.take(addresses[0])
            assert taken is not None
            assert (taken.getsockname(), taken.gettimeout(), os.get_inheritable(taken.fileno())) == (
                addresses[0],
                0.0,
                False,
            )
            assert found.take(addresses[0]) is None
            assert found.addresses == [addresses[1]]
            taken.close()
            left = found.take(addresses[1])
            assert left is not None
            left.close()


def test_what_is_for_another_process_is_left_alone() -> None:
    for environ in ({}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": str(os.getpid())}):
        assert inherited_sockets(environ, FIRST).addresses == []


def test_nothing_was_passed() -> None:
    assert InheritedSockets().take(("127.0.0.1", 6650)) is None


@pytest.mark.parametrize("count", ["-1", "1.5", "x", "100000", "²"])
def test_a_count_that_is_none(count: str) -> None:
    with pytest.raises(ValueError, match="expected a number of sockets up to 1024"):
        inherited_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count}, FIRST)


def test_what_is_no_listening_tcp_socket() -> None:
    with pytest.raises(ValueError, match=rf"LISTEN_FDS=1: descriptor {FIRST}: expected a listening TCP socket"):
        inherited_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}, FIRST)
    for family, kind, told in (
        (socket.AF_INET, socket.SOCK_STREAM, "AF_INET, SOCK_STREAM, not listening"),
        (socket.AF_INET, socket.SOCK_DGRAM, "AF_INET, SOCK_DGRAM"),
        (socket.AF_UNIX, socket.SOCK_STREAM, "AF_UNIX"),
    ):
        with (
            socket.socket(family, kind) as sock,
            passed(sock) as environ,
            pytest.raises(ValueError, match=f"expected a listening TCP socket .*found {told}"),
        ):
            inherited_sockets(environ, FIRST)
