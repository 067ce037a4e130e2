"""Answers whose reads have a limit of time over all; who uses it tests it with servers."""

from __future__ import annotations

import socket

import pytest

from geminga.runtime.sockets.limited_answers import limited_answers


def test_each_read_has_the_time_that_is_told_given_what_was_read_before() -> None:
    here, there = socket.socketpair()
    told: list[tuple[int, float | None]] = []

    def time(read_bytes: int) -> float:
        told.append((read_bytes, here.gettimeout()))
        if len(told) == 3:
            raise TimeoutError("it is over")
        return 7.0 + len(told)

    with here, there:
        there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
        answer = limited_answers(lambda: time)(here)
        answer.begin()
        assert answer.status == 200
        there.sendall(b"c")
        with pytest.raises(TimeoutError, match="it is over"):
            answer.read()
        assert told == [(0, None), (40, 8.0), (41, 9.0)]
        answer.close()
