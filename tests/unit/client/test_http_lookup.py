"""Service URLs of HTTP: which broker is told, and what is made of other answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator

import pytest

import geminga.client as gc
from geminga.client import (
    AuthenticationBasic,
    AuthenticationError,
    AuthenticationToken,
    ConnectError,
    ServiceUnitNotReady,
    TopicNotFound,
)
from geminga.client._api.authentication import Authentication
from geminga.client._transport.http_lookup import HttpLookup, find_broker
from geminga.client._transport.service_urls import parse_addresses
from geminga.runtime import LaneThreads
from support.processes.web_answers import DRIPPING, NO_ANSWERS, Dripping, RawAnswers, WebAnswers

TOLD = json.dumps({"brokerUrl": "pulsar://b:1", "brokerUrlTls": "pulsar+ssl://b:2"})


@pytest.fixture
def web() -> Iterator[WebAnswers]:
    with WebAnswers() as made:
        yield made


def found(url: str, authentication: Authentication | None = None, *, listener: str = "", limit_s: float = 10) -> str:
    async def main() -> str:
        threads = LaneThreads()
        try:
            lookup = HttpLookup(url, "persistent://t/n/a%2Fb topic", listener, limit_s, None)
            return await find_broker(lookup, authentication, threads)
        finally:
            await threads.close()

    return asyncio.run(main())


def test_urls_of_http_have_their_own_ports() -> None:
    assert [address.url for address in parse_addresses("http://a,b:1")] == ["http://a:8080", "http://b:1"]
    (address,) = parse_addresses("https://[::1]/")
    assert (address.url, address.is_tls, address.is_http) == ("https://[::1]:8443", True, True)


def test_broker_is_told_with_listener_and_credentials(web: WebAnswers) -> None:
    web.answers = [(200, TOLD, "")]
    assert found(web.url, AuthenticationBasic("u", "p"), listener="out") == "pulsar://b:1"
    ((path, headers),) = web.asked
    assert path == "/lookup/v2/topic/persistent/t/n/a%252Fb%20topic?listenerName=out"
    assert headers["Authorization"] == "Basic dTpw"

    async def token() -> str:
        return "awaited"

    web.answers = [(200, TOLD, "")]
    assert found(web.url, AuthenticationToken(token)) == "pulsar://b:1"
    assert web.asked[-1][1]["Authorization"] == "Bearer awaited"


def test_answer_elsewhere_is_followed_and_not_for_ever(web: WebAnswers) -> None:
    web.answers = [(307, "", f"{web.url}/there"), (200, TOLD, "")]
    assert found(web.url) == "pulsar://b:1"
    assert web.asked[-1][0] == "/there"
    web.answers = [(307, "", f"{web.url}/round")] * 50
    with pytest.raises(gc.LookupError, match="more than 20 redirects"):
        found(web.url)


@pytest.mark.parametrize(
    ("status", "body", "error", "told"),
    [
        (401, "who", AuthenticationError, "401 who"),
        (404, "no namespace", TopicNotFound, "404 no namespace"),
        (503, "later", ServiceUnitNotReady, "503 later"),
        (200, "<html>", gc.LookupError, "without the broker's address"),
        (200, "{}", gc.LookupError, "without the broker's address"),
        (200, "[" * 100_000, gc.LookupError, "without the broker's address"),
    ],
)
def test_other_answers_are_errors_of_their_kind(
    web: WebAnswers, status: int, body: str, error: type[Exception], told: str
) -> None:
    web.answers = [(status, body, "")]
    with pytest.raises(error, match=told):
        found(web.url)


def test_nobody_there_is_no_connection(web: WebAnswers) -> None:
    url = web.url
    web.close()
    with pytest.raises(ConnectError, match=f"connecting to {url}"):
        found(url)


def test_credentials_that_block_are_asked_for_on_the_same_thread(web: WebAnswers) -> None:
    class Slow:
        method_name = "token"
        is_blocking = True

        def data(self) -> bytes:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return b"slow"

    web.answers = [(200, TOLD, "")]
    assert found(web.url, Slow()) == "pulsar://b:1"
    assert web.asked[-1][1]["Authorization"] == "Bearer slow"


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_answers_and_is_no_web_server_is_no_connection(answer: bytes) -> None:
    with RawAnswers(answer) as raw, pytest.raises(ConnectError, match=f"connecting to {raw.url}"):
        found(raw.url)


@pytest.mark.parametrize("begun", DRIPPING.values(), ids=DRIPPING)
def test_an_answer_that_comes_byte_by_byte_is_waited_for_no_longer_than_the_limit(begun: bytes) -> None:
    with Dripping(begun) as web, pytest.raises((ConnectError, gc.Timeout), match=f"{web.url}.*(within|timed out)"):
        # The thread is free again, too: its end is waited for.
        found(web.url, limit_s=0.1)


def test_the_limit_is_for_all_whom_a_lookup_is_sent_on_to(web: WebAnswers) -> None:
    with Dripping(DRIPPING["body"]) as slow, pytest.raises((ConnectError, gc.Timeout)):
        web.answers = [(307, "", f"{web.url}/there"), (307, "", f"{slow.url}/there")]
        found(web.url, limit_s=0.2)
    assert not web.answers


class Raising:
    """Credentials that can not be had."""

    method_name = "token"

    def __init__(self, *, is_blocking: bool, is_awaited: bool) -> None:
        self.is_blocking = is_blocking
        self._is_awaited = is_awaited

    def data(self) -> bytes | Awaitable[bytes]:
        if self._is_awaited:
            return self._awaited()
        raise FileNotFoundError("no token there")

    async def _awaited(self) -> bytes:
        raise FileNotFoundError("no token there")


@pytest.mark.parametrize(("is_blocking", "is_awaited"), [(False, False), (False, True), (True, False)])
def test_credentials_that_can_not_be_had_are_told_as_such(web: WebAnswers, is_blocking: bool, is_awaited: bool) -> None:
    with pytest.raises(gc.ErrorGettingAuthenticationData, match="no token there"):
        found(web.url, Raising(is_blocking=is_blocking, is_awaited=is_awaited))
