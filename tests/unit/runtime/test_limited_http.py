"""Answers over HTTP that have to be whole within a time."""

from __future__ import annotations

import urllib.request

import pytest

from geminga.runtime.sockets.limited_http import limited_opener, time_left
from support.processes.web_answers import DRIPPING, Dripping, WebAnswers


def test_an_answer_in_time_is_read_whole_and_so_is_that_behind_a_redirect() -> None:
    with WebAnswers() as web:
        web.answers = [(302, "", f"{web.url}/there"), (200, "text" * 100_000, "")]
        with limited_opener(time_left(10), None).open(f"{web.url}/here") as answer:
            assert answer.read() == b"text" * 100_000
        assert [path for path, _ in web.asked] == ["/here", "/there"]


def test_no_more_is_read_when_the_time_is_over() -> None:
    times = [10.0, 10.0, 10.0]

    def left() -> float:
        if not times:
            raise TimeoutError("it is over")
        return times.pop()

    with (
        Dripping(DRIPPING["body"]) as web,
        limited_opener(left, None).open(web.url) as answer,
        pytest.raises(TimeoutError, match="it is over"),
    ):
        answer.read()
    assert not times


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\n"])
def test_a_proxy_that_answers_byte_by_byte_holds_nobody_for_ever(begun: bytes) -> None:
    with Dripping(begun) as web:
        through = urllib.request.ProxyHandler({"https": web.url})
        with pytest.raises(OSError, match=r"no whole answer within 0.2 s|timed out"):
            limited_opener(time_left(0.2), None, through).open("https://127.0.0.1:1/token")


def test_nothing_is_asked_when_the_time_was_over_before() -> None:
    with WebAnswers() as web, pytest.raises(OSError, match="no whole answer within 0 s"):
        limited_opener(time_left(0), None).open(web.url)
    assert web.asked == []
