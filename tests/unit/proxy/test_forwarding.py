"""Requests of HTTP through the proxy, in virtual time, before a web service that says what it was asked."""

from __future__ import annotations

import asyncio

import pytest

from geminga import sim
from geminga.broker.access.anonymous import OPEN
from geminga.broker.access.ports import Access
from geminga.client import InvalidConfiguration
from geminga.proxy import forwarding
from geminga.proxy.core.targets import AllowedTargets
from geminga.proxy.forwarding import BODY_BYTES_MAX, Forwarding, WebRules
from support.worlds.proxy_world import ROLES

WEB = "http://broker:8080"
#: What was sent last, message by message.
SENT: list[dict] = []


class Web(asyncio.Protocol):
    """Answers each request with what ``answers`` says, all of it at the end of the request's head and body."""

    def __init__(self, asked: list[bytes], answers: list[bytes]) -> None:
        self.asked, self.answers, self.came = asked, answers, bytearray()

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.came += data
        head, end, body = bytes(self.came).partition(b"\r\n\r\n")
        length = next((int(line[16:]) for line in head.lower().split(b"\r\n") if line[:16] == b"content-length: "), 0)
        if end and len(body) >= length:
            self.asked.append(bytes(self.came))
            self.transport.write(self.answers.pop(0))
            self.transport.close()


class Links:
    """The proxy's own credentials; files of TLS that can not be read."""

    def context(self):
        raise InvalidConfiguration("brokerClientTrustCertsFilePath: there is no such file")

    async def headers(self, runtime) -> list[tuple[str, str]]:
        return [("Authorization", "Bearer proxy")]


def asked(
    path: str,
    *answers: bytes,
    method: str = "GET",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    body: tuple[bytes, ...] = (b"",),
    access: Access = OPEN,
    allowed: AllowedTargets | None = None,
    query: bytes = b"",
    web: str = WEB,
) -> tuple[list[bytes], int, bytes, list[tuple[bytes, bytes]]]:
    """What brokers were asked; status, body and headers of the answer."""
    was_asked: list[bytes] = []
    sent: list[dict] = []

    async def main(world: sim.SimWorld) -> None:
        left = list(answers)
        for name in ("broker", "other"):
            node = world.node(name)
            await node.run(lambda node: node.runtime.network.listen(lambda: Web(was_asked, left), "0.0.0.0", 8080))
        door = world.node("door")

        async def resolve(host: str, port: int) -> list[str]:
            return [host]

        async def web_url() -> str:
            return web

        parts = list(body)

        async def receive() -> dict:
            if not parts:
                await asyncio.Event().wait()  # the client stays
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: dict) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": list(headers),
            "client": ("192.0.2.7", 1),
        }
        rules = WebRules(allowed or AllowedTargets(["*"], ["*"], ["6650"]), resolve, 10.0)
        application = Forwarding(door.runtime, access, Links(), rules, web_url)
        await door.run(lambda _: application(scope, receive, send))
        await world.sleep(30)
        assert world.network.connections(door) == []

    sim.run(main)
    status = sent[0]["status"]
    SENT[:] = sent
    return was_asked, status, b"".join(part.get("body", b"") for part in sent[1:]), sent[0]["headers"]


def test_a_request_goes_on_as_it_came_and_the_answer_comes_back() -> None:
    answer = b"HTTP/1.1 204 No Content\r\nETag: x\r\nConnection: close\r\n\r\n"
    requests, status, body, headers = asked(
        "/admin/v2/a%2Fb", answer, method="PUT", body=(b"ab", b"c"), query=b"x=%20y", headers=((b"x-mine", b"1"),)
    )
    assert (status, body, headers) == (204, b"", [(b"etag", b"x")])
    head, _, sent = requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"PUT /admin/v2/a%2Fb?x=%20y HTTP/1.1"
    assert {b"host: broker:8080", b"x-mine: 1", b"content-length: 3", b"x-forwarded-for: 192.0.2.7"} <= set(lines)
    assert sent == b"abc"


def test_who_leaves_while_a_broker_is_silent_holds_no_connection_to_it() -> None:
    silent: list[asyncio.Protocol] = []

    async def main(world: sim.SimWorld) -> None:
        node, door = world.node("broker"), world.node("door")

        def accept() -> asyncio.Protocol:
            silent.append(asyncio.Protocol())
            return silent[-1]

        await node.run(lambda node: node.runtime.network.listen(accept, "0.0.0.0", 8080))

        async def resolve(host: str, port: int) -> list[str]:
            return [host]

        async def web_url() -> str:
            return WEB

        said = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict:
            if said:
                return said.pop()
            await world.sleep(5)
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            raise AssertionError("nobody is there any more")

        scope = {"type": "http", "method": "GET", "path": "/admin/v2/x", "headers": [], "client": ("192.0.2.7", 1)}
        rules = WebRules(AllowedTargets(["*"], ["*"], ["6650"]), resolve, 10.0)
        application = Forwarding(door.runtime, OPEN, Links(), rules, web_url)
        await door.run(lambda _: application(scope, receive, send))
        assert len(silent) == 1
        assert world.now < 6
        await world.sleep(1)
        assert world.network.connections(door) == []

    sim.run(main)


def test_a_long_answer_in_chunks_passes_whole() -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (10_000, b"z" * 10_000) for _ in range(30)) + b"0\r\n\r\n"
    _, status, body, _ = asked("/lookup/v2/x", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
    assert (status, body) == (200, b"z" * 300_000)


def test_a_redirection_is_followed_with_the_body_and_the_credentials() -> None:
    redirect = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://other:8080/admin/v2/t\r\nContent-Length: 0\r\n\r\n"
    done = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    requests, status, body, _ = asked(
        "/admin/v2/t",
        redirect,
        done,
        method="POST",
        body=(b"abc",),
        headers=((b"authorization", b"Bearer jane"),),
        access=ROLES,
    )
    assert (status, body, len(requests)) == (200, b"ok", 2)
    for request in requests:
        assert request.endswith(b"abc")
        assert b"authorization: Bearer proxy\r\n" in request
        assert b"x-original-principal: jane\r\n" in request
        assert b"Bearer jane" not in request
    assert b"host: other:8080\r\n" in requests[1]


def test_redirections_end_and_lead_nowhere_else() -> None:
    redirect = b"HTTP/1.1 307 T\r\nLocation: http://other:8080/admin/v2/t\r\nContent-Length: 0\r\n\r\n"
    requests, status, body, _ = asked("/admin/v2/t", *[redirect] * 20)
    assert (status, len(requests)) == (502, 11)
    assert b"more than 10 times" in body
    # What the operator names is asked; to where it sends on is another question.
    requests, status, body, _ = asked("/admin/v2/t", redirect, allowed=AllowedTargets(["elsewhere"], ["*"], ["*"]))
    assert (status, len(requests)) == (502, 1)
    assert b"brokerProxyAllowedHostNames" in body


@pytest.mark.parametrize("data", [b"bad", b""])
def test_who_is_not_known_asks_no_broker(data: bytes) -> None:
    requests, status, _, _ = asked("/admin/v2/t", headers=((b"authorization", b"Bearer " + data),), access=ROLES)
    assert (requests, status) == ([], 401)


def test_a_body_that_is_too_long_goes_nowhere() -> None:
    requests, status, _, _ = asked("/admin/v2/t", method="PUT", body=(b"x" * BODY_BYTES_MAX, b"y"))
    assert (requests, status) == ([], 413)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
def test_half_an_answer_is_not_ended_as_if_it_were_whole(answer: bytes) -> None:
    _, status, body, _ = asked("/admin/v2/t", answer)
    assert (status, body) == (200, b"half")
    assert [message["type"] for message in SENT].count("http.response.start") == 1
    assert all(message.get("more_body", True) for message in SENT[1:])


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
def test_a_broker_that_gives_no_answer_is_told_of(answer: bytes) -> None:
    _, status, body, _ = asked("/admin/v2/t", answer)
    assert status == 502
    assert b"broker:8080" in body


def test_a_broker_that_is_silent_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Web, "data_received", lambda self, data: None)
    assert forwarding.SILENT_S_MAX == 300
    _, status, body, _ = asked("/admin/v2/t")
    assert status == 502
    assert b"silent" in body


def test_files_of_tls_that_are_not_good_are_told_of() -> None:
    was_asked, status, body, _ = asked("/admin/v2/clusters", web="https://broker:8080")
    assert (was_asked, status) == ([], 502)
    assert b"TLS to brokers: brokerClientTrustCertsFilePath: there is no such file" in body


def test_other_paths_are_none() -> None:
    assert asked("/other")[1] == 404
    assert asked("/admin/../x")[1] == 400
