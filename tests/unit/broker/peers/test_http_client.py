"""Requests between brokers: redirections are followed, and whatever a peer does comes to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga import sim
from geminga.broker.peers import http_client
from geminga.broker.peers.http_client import (
    REDIRECTS_MAX,
    REQUEST_S_MAX,
    REQUESTS_AT_ONCE,
    PeerHttp,
    addresses_of,
)
from geminga.broker.peers.links import PeerLinks
from geminga.model.errors import UnavailableError
from geminga.runtime import wait_ms
from geminga.sim import SimNode, SimWorld

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" + b'{"a":1}'


class Peer:
    """A web service that answers what it was told to, and keeps what it was asked."""

    def __init__(self, answers: list[bytes], *, closes: bool = True) -> None:
        self.answers = answers
        self.closes = closes
        self.asked: list[bytes] = []

    def protocol(self) -> asyncio.Protocol:
        peer = self

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                peer.asked.append(data)
                self.transport.write(peer.answers[min(len(peer.asked), len(peer.answers)) - 1])
                if peer.closes:
                    self.transport.close()

        return Connection()


def run(peer: Peer, main: Callable[[PeerHttp], Awaitable[Any]]) -> None:
    async def scenario(world: SimWorld) -> None:
        async def listen(node: SimNode) -> None:
            await node.runtime.network.listen(peer.protocol, "0.0.0.0", 80)

        await world.node("peer").run(listen)
        await world.node("asking").run(lambda node: main(PeerHttp(node.runtime)))

    sim.run(scenario, seed=3)


def test_a_request_and_its_body_arrive_and_the_answer_is_read() -> None:
    peer = Peer([OK])

    async def main(http: PeerHttp) -> None:
        answer = await http.request("PUT", "http://peer/a/b%2Fc?x=1", b'"earliest"')
        assert (answer.status, answer.is_good, answer.json(), answer.url) == (200, True, {"a": 1}, "peer")

    run(peer, main)
    head, _, body = peer.asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /a/b%2Fc?x=1 HTTP/1.1\r\n")
    assert b"Content-Type: application/json" in head
    assert body == b'"earliest"'


def test_what_is_asked_for_is_not_cut_at_a_sharp() -> None:
    """Else a peer would do to the subscription "bob" what was decided for "bob#x"."""
    there = b"HTTP/1.1 307 X\r\nLocation: http://peer/subscription/bob#x?force=true\r\nContent-Length: 0\r\n\r\n"
    peer = Peer([there, OK])

    async def main(http: PeerHttp) -> None:
        assert (await http.request("DELETE", "http://peer/subscription/bob#x?force=true")).is_good

    run(peer, main)
    assert [asked.partition(b"\r\n")[0] for asked in peer.asked] == [
        b"DELETE /subscription/bob#x?force=true HTTP/1.1"
    ] * 2


def test_redirections_are_followed_with_the_same_method_and_end_when_there_are_too_many() -> None:
    there = b"HTTP/1.1 307 X\r\nLocation: http://peer/there\r\nContent-Length: 0\r\n\r\n"
    peer, circle = Peer([there, OK]), Peer([there])

    async def main(http: PeerHttp) -> None:
        assert (await http.request("DELETE", "http://peer/here")).is_good

    async def round_and_round(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError, match=f"more than {REDIRECTS_MAX} redirections"):
            await http.request("GET", "http://peer/here")

    run(peer, main)
    assert [asked.split(b" ")[:2] for asked in peer.asked] == [[b"DELETE", b"/here"], [b"DELETE", b"/there"]]
    run(circle, round_and_round)
    assert len(circle.asked) == REDIRECTS_MAX + 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{", "does not answer"),
        (b"\x00\x01garbage\r\n\r\n", "does not answer"),
    ],
)
def test_a_peer_that_speaks_nonsense_or_stops_does_not_answer(answer: bytes, why: str) -> None:
    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError, match=why):
            await http.request("GET", "http://peer/")

    run(Peer([answer]), main)


@pytest.mark.parametrize(
    "place",
    ["http://[", "http://peer:x/", "http://peer:70000/", "http://p\xe9er/", "/with space", "/\xe9", "http://\xff[/"],
)
def test_a_redirection_to_nowhere_is_no_answer(place: str) -> None:
    away = f"HTTP/1.1 307 X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")

    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError):
            await http.request("GET", "http://peer/here")

    run(Peer([away]), main)


@pytest.mark.parametrize("url", ["http://bücher:80/x", "http://peer/ü", "http://peer/a b", "http://two..dots/x"])
def test_an_address_that_can_not_be_asked_is_no_answer(url: str) -> None:
    """As in the data of another cluster."""

    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError):
            await http.request("GET", url)

    run(Peer([OK]), main)


@pytest.mark.parametrize(
    "location", [b"http://[x", b"http://peer:99999/", b"/a b", b"/\xe9", b"http://peer/\x7f", b"//", b"http://pe er/"]
)
def test_a_redirection_to_what_is_no_place_is_no_answer(location: bytes) -> None:
    """It broke the round of the leader that had asked, and with that the leader."""

    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError):
            await http.request("PUT", "http://peer/here")

    run(Peer([b"HTTP/1.1 307 X\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"]), main)


def test_certificates_that_can_not_be_read_now_are_told_as_a_peer_that_is_not_reached() -> None:
    """Another error than all callers wait for, which ended a broker where it came to who looks whether a cluster is
    back."""

    async def main(http: PeerHttp) -> None:
        http.links = PeerLinks({"tls_trust_certs_file_path": "/none.pem"}, uses_tls=True)
        with pytest.raises(UnavailableError, match=r"/none\.pem"):
            await http.request("GET", "https://peer/here")

    run(Peer([OK]), main)


def test_an_answer_that_is_nested_too_deep_is_no_json() -> None:
    async def main(http: PeerHttp) -> None:
        answer = await http.request("GET", "http://peer/here")
        with pytest.raises(UnavailableError, match="not JSON"):
            answer.json()
        assert answer.reason == "status 400"

    run(Peer([b"HTTP/1.1 400 X\r\nContent-Length: 5000\r\n\r\n" + b"[" * 5000]), main)


def test_a_peer_that_is_silent_or_gone_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(http: PeerHttp) -> None:
        clock = asyncio.get_running_loop().time
        since = clock()
        with pytest.raises(UnavailableError, match=f"no answer to GET http://peer/ within {REQUEST_S_MAX:g} s"):
            await http.request("GET", "http://peer/")
        assert clock() - since == pytest.approx(REQUEST_S_MAX)
        with pytest.raises(UnavailableError, match="peer:81 does not answer"):
            await http.request("GET", "http://peer:81/")
        with pytest.raises(UnavailableError, match="no web service without TLS"):
            await http.request("GET", "https://peer/")

    run(Peer([b"HTTP/1.1 200 OK\r\n"], closes=False), main)


@pytest.mark.parametrize("is_sent_on", [False, True])
def test_a_peer_that_hangs_keeps_no_request_from_another(is_sent_on: bool) -> None:
    hung, well = Peer([b""], closes=False), Peer([OK])
    sends_on = Peer([b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://hung/\r\nContent-Length: 0\r\n\r\n"])

    async def scenario(world: SimWorld) -> None:
        for name, peer in (("hung", hung), ("well", well), ("on", sends_on)):

            async def listen(node: SimNode, peer: Peer = peer) -> None:
                await node.runtime.network.listen(peer.protocol, "0.0.0.0", 80)

            await world.node(name).run(listen)

        async def main(node: SimNode) -> None:
            http = PeerHttp(node.runtime)
            url = "http://on/" if is_sent_on else "http://hung/"
            waiting = [asyncio.ensure_future(http.request("GET", url)) for _ in range(3 * REQUESTS_AT_ONCE)]
            await wait_ms(1000)
            assert b"".join(hung.asked).count(b"GET ") == REQUESTS_AT_ONCE
            async with asyncio.timeout(1):
                for address in ("http://well/", *(["http://on/"] if is_sent_on else [])):
                    sends_on.answers = [OK]
                    assert (await http.request("GET", address)).is_good
            answers = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(answer) for answer in answers} == {UnavailableError}

        await world.node("asking").run(main)

    sim.run(scenario, seed=3)


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ANSWER_BYTES_MAX", 100)

    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError, match="more than 100 bytes"):
            await http.request("GET", "http://peer/")

    run(Peer([b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101]), main)


@pytest.mark.parametrize(
    ("body", "reason"), [(b'{"reason":"no"}', "no"), (b"[]", "status 409"), (b"<html>", "status 409")]
)
def test_a_refusal_has_a_reason(body: bytes, reason: str) -> None:
    async def main(http: PeerHttp) -> None:
        answer = await http.request("GET", "http://peer/")
        assert (answer.is_good, answer.reason) == (False, reason)

    run(Peer([b"HTTP/1.1 409 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body]), main)


def test_answers_that_are_being_read_have_one_bound_together(monkeypatch) -> None:
    monkeypatch.setattr(http_client, "ANSWERS_BYTES_MAX", 150_000)
    peer = Peer([b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + b"x" * 60_000], closes=False)

    async def main(http: PeerHttp) -> None:
        waiting = [asyncio.ensure_future(http.request("GET", "http://peer/")) for _ in range(2)]
        while http._held_bytes < 120_000:
            await wait_ms(1)
        with pytest.raises(UnavailableError, match="more than 150000 bytes together"):
            await http.request("GET", "http://peer/")
        assert not any(request.done() for request in waiting)
        for request in waiting:
            request.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert http._held_bytes == 0

    run(peer, main)


def test_the_first_of_a_clusters_addresses_that_answers_is_asked() -> None:
    peer = Peer([OK])

    async def main(http: PeerHttp) -> None:
        addresses = addresses_of("http://away:80,peer:80/, ")
        assert addresses == ["http://away:80", "http://peer:80"]
        assert (await http.first_answer(addresses, "GET", "/a")).url == "peer:80"
        with pytest.raises(UnavailableError, match="away"):
            await http.first_answer(addresses[:1], "GET", "/a")
        with pytest.raises(UnavailableError, match="no address"):
            await http.first_answer([], "GET", "/a")

    run(peer, main)
    assert len(peer.asked) == 1


@pytest.mark.parametrize("url", ["http://peer:99999/a", "http://peer:80,other:80/a", "http://[peer/a"])
def test_an_address_that_is_none_is_refused_in_a_sentence(url: str) -> None:
    async def main(http: PeerHttp) -> None:
        with pytest.raises(UnavailableError, match="is no address of a web service"):
            await http.request("GET", url)

    run(Peer([OK]), main)
