"""Requests of the administration client: connections are kept, redirections followed, refusals are errors by kind."""

from __future__ import annotations

import asyncio
import os
import pickle
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest

from geminga.admin import _http, errors
from geminga.admin import connect as admin_connect
from geminga.admin._credentials import said_by
from geminga.admin._http import HttpCaller
from geminga.admin.blocking import connect
from geminga.admin.defaults import DEFAULT_URL, TIMEOUT_S
from geminga.client import AuthenticationBasic, AuthenticationTLS, AuthenticationToken
from support.processes.certificates import Authority
from support.processes.web_answers import DRIPPING, Dripping


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Path -> status, headers, body.
    answers: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {}
    #: Path -> what is written before the connection ends.
    cut: ClassVar[dict[str, bytes]] = {}
    #: Peer's port, method, path, body, authorization of each request.
    seen: ClassVar[list[tuple[int, str, str, bytes, str | None]]] = []

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.seen.append((self.client_address[1], self.command, self.path, body, self.headers.get("Authorization")))
        if self.path == "/cut" or self.path in self.cut:
            self.wfile.write(self.cut.get(self.path, b""))
            self.close_connection = True
            return
        status, headers, answer = self.answers.get(self.path, (200, {}, b'"ok"'))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        # The peer is not told that there is no next request.
        self.close_connection = self.path == "/last"

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        super().__init__(address, handler)
        self.closed: SimpleQueue[None] = SimpleQueue()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed.put(None)


@pytest.mark.parametrize(
    "kind", [errors.AdminError, *errors.AdminError.__subclasses__()], ids=lambda kind: kind.__name__
)
def test_errors_travel_between_processes(kind: type[errors.AdminError]) -> None:
    """A pool of multiprocessing whose worker raised one waited for ever for what it could not read."""
    error = kind("GET http://localhost:8080/x", 404, "not there")
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.status, found.reason) == (kind, str(error), 404, "not there")


@pytest.fixture
def server() -> Iterator[_Server]:
    _Handler.answers, _Handler.cut, _Handler.seen = {}, {}, []
    with _Server(("127.0.0.1", 0), _Handler) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever, 0.01)
        yield server
        server.shutdown()


@pytest.fixture
def url(server: _Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_connection_is_kept_and_made_anew_when_it_was_closed(url: str) -> None:
    caller = HttpCaller(url)
    for path in ("/one", "/last", "/two", "/three"):
        assert caller.request("GET", path)[0] == b'"ok"'
    ports = [seen[0] for seen in _Handler.seen]
    assert ports[0] == ports[1] != ports[2] == ports[3]
    caller.close()


def test_a_change_goes_to_a_new_connection_where_the_old_one_was_closed_before(server: _Server, url: str) -> None:
    caller = HttpCaller(url)
    caller.request("GET", "/last")
    server.closed.get(timeout=5)
    caller.request("DELETE", "/change")
    assert [seen[1] for seen in _Handler.seen] == ["GET", "DELETE"]
    caller.close()


def test_a_forked_child_has_connections_of_its_own(url: str) -> None:
    """Of one that two processes ask by, each reads the other's answers."""
    caller = HttpCaller(url)
    caller.request("GET", "/parent")
    child = os.fork()
    if not child:
        try:
            caller.request("GET", "/child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    caller.request("GET", "/parent")
    ports = [seen[0] for seen in _Handler.seen]
    assert [seen[2] for seen in _Handler.seen] == ["/parent", "/child", "/parent"]
    assert ports[0] == ports[2] != ports[1]
    caller.close()


@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT"])
def test_a_change_that_may_have_been_made_is_not_sent_twice(url: str, method: str) -> None:
    caller = HttpCaller(url)
    caller.request("GET", "/one")
    with pytest.raises(errors.UnreachableError, match="no answer"):
        caller.request(method, "/cut")
    assert [seen[1] for seen in _Handler.seen] == ["GET", method]
    caller.close()


def test_a_look_is_sent_again_where_the_connection_ended_without_an_answer(url: str) -> None:
    caller = HttpCaller(url)
    caller.request("GET", "/one")
    with pytest.raises(errors.UnreachableError, match="no answer"):
        caller.request("GET", "/cut")
    assert [seen[2] for seen in _Handler.seen] == ["/one", "/cut", "/cut"]
    caller.close()


def test_the_broker_that_serves_it_is_asked_with_the_same_body(url: str) -> None:
    caller = HttpCaller(url, headers=lambda: {"Authorization": "Bearer x"})
    _Handler.answers["/here?a=true"] = (307, {"Location": f"{url}/there?a=true"}, b"")
    caller.request("PUT", "/here", {"a": True, "b": None}, b"[]")
    assert [seen[1:] for seen in _Handler.seen] == [
        ("PUT", "/here?a=true", b"[]", "Bearer x"),
        ("PUT", "/there?a=true", b"[]", "Bearer x"),
    ]
    _Handler.answers["/round"] = (307, {"Location": f"{url}/round"}, b"")
    with pytest.raises(errors.AdminError, match="sent on more than 5 times"):
        caller.request("GET", "/round")
    _Handler.answers["/off"] = (307, {"Location": "ftp://x"}, b"")
    with pytest.raises(errors.AdminError, match="'ftp://x', which is no address"):
        caller.request("GET", "/off")
    caller.close()


@pytest.mark.parametrize(
    "place",
    [
        "http://[",
        "http://[x]/",
        "http://127.0.0.1:x/",
        "http://127.0.0.1:70000/",
        "http://two..dots/",
        "http:///x",
        "http:/x",
    ]
    + ["http://127.0.0.1:1/a b", "http://127.0.0.1:1/\xe9", "http://\xff..x/"],
)
def test_a_broker_that_sends_on_to_no_place_is_told_as_one_that_does_not_answer(url: str, place: str) -> None:
    caller = HttpCaller(url)
    _Handler.answers["/here"] = (307, {"Location": place}, b"")
    with pytest.raises(errors.AdminError):
        caller.request("GET", "/here")
    caller.close()


@pytest.mark.parametrize("host", ["two..dots", "x" * 70, ".dot", "half\ud800"])
def test_a_host_that_can_be_none_does_not_answer(host: str) -> None:
    caller = HttpCaller(f"http://{host}:8080")
    with pytest.raises(errors.UnreachableError, match="no answer"):
        caller.request("GET", "/x")
    caller.close()


def test_what_says_who_asks_is_not_sent_where_it_could_be_read() -> None:
    with pytest.raises(errors.AdminError, match="not encrypted"):
        HttpCaller._elsewhere("GET x", 307, "https://a/x", "http://b/x")
    assert HttpCaller._elsewhere("GET x", 307, "https://a/x", "https://b/x") == "https://b/x"


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (401, b"", errors.UnauthorizedError, "no reason given"),
        (403, b'{"reason":"no"}', errors.ForbiddenError, "no"),
        (404, b'{"reason":"gone"}', errors.NotFoundError, "gone"),
        (409, b"[1]", errors.ConflictError, r"\[1\]"),
        (412, b"plain", errors.PreconditionFailedError, "plain"),
        (429, b"", errors.NotAvailableError, ""),
        (500, b"\xff", errors.AdminError, ""),
        (501, b'{"reason":"compaction"}', errors.NotBuiltError, "compaction"),
        (503, b'{"reason":7}', errors.NotAvailableError, ""),
        (503, b"[" * 100_000, errors.NotAvailableError, r"\[\["),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(url: str, status: int, body: bytes, kind: type, reason: str) -> None:
    caller = HttpCaller(url)
    _Handler.answers["/x"] = (status, {}, body)
    with pytest.raises(kind, match=f"GET {url}/x: {status} .*{reason}") as raised:
        caller.request("GET", "/x")
    assert type(raised.value) is kind
    assert raised.value.status == status
    caller.close()


def test_a_connection_that_is_kept_has_its_time_again(url: str) -> None:
    caller = HttpCaller(url, timeout_s=5.0)
    caller.request("GET", "/one")
    connection, is_kept = caller._take(url)
    assert is_kept
    assert connection.sock.gettimeout() == 5.0
    connection.close()
    caller.close()


def test_an_answer_that_is_too_large_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "ANSWER_BYTES_MAX", 10)
    _Handler.answers |= {"/ten": (200, {}, b"x" * 10), "/more": (200, {}, b"x" * 11)}
    caller = HttpCaller(url)
    assert len(caller.request("GET", "/ten")[0]) == 10
    with pytest.raises(errors.UnreachableError, match="more than 10 bytes"):
        caller.request("GET", "/more")
    caller.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 10, "cut off after 10 of 900 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", "cut off after 0 of 900 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "cut off in its headers"),
        (b"HTTP/1.1 200 OK\r\n", "cut off in its headers"),
    ],
    ids=["in its body", "before its body", "in a header", "before its headers"],
)
def test_an_answer_that_is_cut_off_is_none(url: str, answer: bytes, said: str) -> None:
    """Also where it could be read so far: what is missing may be most of it."""
    _Handler.cut["/half"] = answer
    caller = HttpCaller(url)
    with pytest.raises(errors.UnreachableError, match=said):
        caller.request("PUT", "/half")
    assert caller.request("GET", "/whole")[0] == b'"ok"'
    caller.close()


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"ok"',
        b'HTTP/1.0 200 OK\r\n\r\n"ok"',
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n"ok"\r\n0\r\n\r\n',
    ],
    ids=["with its connection", "of a server of HTTP/1.0", "by its chunks"],
)
def test_an_answer_whose_length_is_not_told_ends(url: str, answer: bytes) -> None:
    _Handler.cut["/whole"] = answer
    caller = HttpCaller(url)
    assert caller.request("GET", "/whole")[0] == b'"ok"'
    caller.close()


@pytest.mark.parametrize("begun", DRIPPING.values(), ids=DRIPPING)
def test_an_answer_that_comes_byte_by_byte_holds_nobody_for_ever(begun: bytes) -> None:
    with Dripping(begun) as web:
        caller = HttpCaller(web.url, timeout_s=0.2)
        with pytest.raises(errors.UnreachableError, match=r"no answer: (only \d+ bytes within|timed out)"):
            caller.request("GET", "/slow")


def test_an_answer_that_comes_byte_by_byte_does_not_hold_who_awaits_it_either() -> None:
    async def scenario() -> None:
        async with admin_connect(web.url, timeout_s=0.2) as admin:
            with pytest.raises(errors.UnreachableError, match=r"no answer: (only \d+ bytes within|timed out)"):
                await admin.tenants.list()

    with Dripping(DRIPPING["body"]) as web:
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("begun", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 1000),
    ],
    ids=["before it", "after it"],
)
def test_an_answer_that_has_no_end_holds_nobody_for_ever(
    begun: bytes, again: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast it comes."""
    monkeypatch.setattr(_http, "READ_BYTES_MAX", 1 << 20)
    with Dripping(begun, again, 0.0) as web:
        caller = HttpCaller(web.url)
        with pytest.raises(errors.UnreachableError, match="no answer: more than 1048576 bytes"):
            caller.request("GET", "/endless")


def test_a_slow_answer_is_read_as_long_as_it_comes_at_the_least_rate() -> None:
    now_s = 0.0
    pace = _http._Pace(30.0, lambda: now_s)
    assert pace(0) == 30.0
    now_s = 29.0  # the broker thought that long
    assert pace(1) == pytest.approx(30.0, abs=0.01)
    for second in range(1, 1000):
        now_s = 29.0 + second
        assert pace(second * _http.BYTES_PER_S_MIN) == 30.0
    now_s += 29.0
    assert pace(999 * _http.BYTES_PER_S_MIN) == pytest.approx(1.0)
    now_s += 1.0
    with pytest.raises(TimeoutError, match=r"only 16367616 bytes within 1029 s"):
        pace(999 * _http.BYTES_PER_S_MIN)


def test_connections_that_wait_are_few(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http, "IDLE_MAX", 2)
    caller = HttpCaller(url)
    for connection in [caller._take(url)[0] for _ in range(5)]:
        caller._give(url, connection, is_over=False)
    assert len(caller._idle[url]) == 2
    caller.close()
    assert not caller._idle[url]


def test_where_nothing_is_said() -> None:
    assert (DEFAULT_URL, TIMEOUT_S) == ("http://localhost:8080", 30.0)


def test_client_authentication_is_asked_with_each_request(url: str) -> None:
    tokens = iter(["one", "two"])
    with connect(url, authentication=AuthenticationToken(lambda: next(tokens))) as admin:
        admin.tenants.list()
        admin.tenants.list()
    with connect(url, authentication=AuthenticationBasic("jane", "hidden1"), headers=lambda: {"X": "y"}) as admin:
        admin.tenants.list()
    assert [seen[4] for seen in _Handler.seen] == ["Bearer one", "Bearer two", "Basic amFuZTpoaWRkZW4x"]

    async def awaited() -> str:
        return "three"

    with (
        connect(url, authentication=AuthenticationToken(awaited)) as admin,
        pytest.raises(ValueError, match="a token that is awaited"),
    ):
        admin.tenants.list()
    assert len(_Handler.seen) == 3


def test_asynchronous_client_asks_as_somebody_too(url: str) -> None:
    async def scenario() -> None:
        async with admin_connect(url, authentication=AuthenticationToken("abc")) as admin:
            await admin.tenants.list()

    asyncio.run(scenario())
    assert [seen[4] for seen in _Handler.seen] == ["Bearer abc"]


def test_certificate_that_can_not_be_read_is_told_at_once(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"certificate /nowhere.pem, key /key.pem: No such file"):
        connect("https://localhost", authentication=AuthenticationTLS("/nowhere.pem", "/key.pem"))
    authority = Authority(tmp_path, "authority")
    store = authority.store("client")
    said = said_by(AuthenticationTLS(str(store), str(store)), None, None)
    assert said.tls is not None
    assert said.headers() == {}
    own = ssl.create_default_context()
    assert said_by(AuthenticationTLS("/nowhere.pem", ""), None, own).tls is own


@pytest.mark.parametrize("value", ["Bearer secret\n", "Bearer former-secret\r\nX: secret"])
def test_header_that_can_not_be_written_is_told_by_its_name_alone(value: str) -> None:
    """A token is read from a file, with the end of its line: what writes headers repeats all of it."""
    caller = HttpCaller("http://127.0.0.1:9", headers=lambda: {"Authorization": value})
    with pytest.raises(ValueError, match="the header Authorization") as told:
        caller.request("GET", "/admin/v2/clusters")
    assert "secret" not in str(told.value)
    caller.close()
