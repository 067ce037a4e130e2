"""What an answer is, by what its request expects."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.admin import AdminError
from geminga.admin._request import Request, answer_to
from geminga.admin.values import StoredMessage
from support.processes.asked_broker import AskedBroker


@pytest.mark.parametrize(
    ("request_", "answer", "expected"),
    [
        (Request("GET", "/"), b"", None),
        (Request("GET", "/"), b'{"a":1}', {"a": 1}),
        (Request("GET", "/", is_text=True), b"5", "5"),
        (Request("GET", "/", is_text=True), b'"5"', "5"),
        (Request("GET", "/", is_any=True), b"5", 5),
        (Request("GET", "/", is_any=True), b"ok", "ok"),
        (Request("GET", "/", is_message=True), b"", StoredMessage(b"", {"x": "y"})),
    ],
)
def test_answers(request_: Request[Any], answer: bytes, expected: object) -> None:
    assert answer_to(AskedBroker(lambda _: answer, {"x": "y"}), request_) == expected


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (Request("POST", "/"), None),
        (Request("POST", "/", body=False), b"false"),
        (Request("POST", "/", text="a b"), b"a b"),
    ],
)
def test_bodies(request_: Request[Any], body: bytes | None) -> None:
    broker = AskedBroker()
    answer_to(broker, request_)
    assert [one.body for one in broker.asked] == [body]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (Request("GET", "/x"), b"<html>a portal</html>"),
        (Request("GET", "/x"), b"\xff"),
        (Request("GET", "/x", is_text=True), b"\xff"),
        (Request("GET", "/x", is_text=True), b'"cut'),
        (Request("GET", "/x", is_any=True), b"\xff\xfe"),
        (Request("GET", "/x"), b"[" * 100_000),
    ],
)
def test_an_answer_that_is_none_of_a_broker_is_an_error_of_the_administration(
    request_: Request[Any], answer: bytes
) -> None:
    with pytest.raises(AdminError, match="GET /x: an answer that is not what was asked for"):
        answer_to(AskedBroker(lambda _: answer), request_)
