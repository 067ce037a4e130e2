"""Who is answered before the application, and that an answer waits for the body."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from geminga.broker.rest.http.front import DISCARDED_BYTES_MAX, PageGuard, WholeBodies
from geminga.broker.rest.http.request_rate import RequestRate
from geminga.runtime.log import trace_id
from geminga.wire.pages import names_of

Headers = list[tuple[bytes, bytes]]


def scope(method: str, headers: Headers) -> dict[str, object]:
    return {"type": "http", "method": method, "path": "/", "headers": headers}


async def answer(app, method: str, headers: Headers, chunks: list[bytes]) -> tuple[int, dict[bytes, bytes], bytes, int]:
    """Status, headers, body, and how many chunks of the request were taken before it."""
    sent, taken = [], 0
    left = list(chunks)

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message) -> None:
        sent.append((message, taken))

    await app(scope(method, headers), receive, send)
    (start, when), (body, _) = sent
    return start["status"], dict(start["headers"]), body["body"], when


async def ok(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def test_foreign_page_is_answered_here_behind_its_body() -> None:
    told: list[tuple[str, str]] = []
    app = PageGuard(ok, names_of((), ()), 10, lambda text, kind: told.append((kind, text)), lambda size: "ab" * size)
    length = (b"content-length", b"6")
    headers = [(b"host", b"localhost"), (b"origin", b"http://evil.example"), length]
    status, found, body, taken = asyncio.run(answer(app, "POST", headers, [b"abc", b"def"]))
    assert (status, taken) == (403, 2)
    assert int(found[b"content-length"]) == len(body)
    assert "evil.example" in json.loads(body)["reason"]
    assert [kind for kind, _ in told] == ["page"]
    status, _, _, taken = asyncio.run(answer(WholeBodies(ok), "POST", [length], [b"abc", b"def"]))
    assert (status, taken) == (200, 2)


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [(b"/a/bob#x", b"", 400), (b"/a", b"force=true#", 400), (b"/a/bob%23x", b"role=a%23", 200)],
)
def test_address_with_a_fragment_is_refused(path: bytes, query: bytes, status: int) -> None:
    """It is none of HTTP (RFC 9112, 3.2): who passes it on may cut it there, and mean something else."""
    told: list[tuple[str, str]] = []
    app = PageGuard(ok, names_of((), ()), 10, lambda text, kind: told.append((kind, text)), lambda size: "ab" * size)
    sent = []

    async def send(message) -> None:
        sent.append(message)

    asked = {**scope("DELETE", []), "path": "/a/bob#x", "raw_path": path, "query_string": query}
    asyncio.run(app(asked, None, send))
    assert sent[0]["status"] == status
    assert status == 200 or "%23" in json.loads(sent[1]["body"])["reason"]
    assert [kind for kind, _ in told] == ["fragment"] * (status == 400)


def test_secret_that_an_address_has_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = PageGuard(ok, names_of((), ()), 10, lambda text, kind: None, lambda size: "ab" * size)
    sent = []

    async def send(message) -> None:
        sent.append(message)

    path = "/admin/v2/brokers/configuration/brokerClientAuthenticationParameters/token:abc"
    asyncio.run(app({**scope("POST", []), "path": path}, None, send))
    assert "/brokers/configuration/brokerClientAuthenticationParameters/......" in caplog.text
    assert "token:abc" not in caplog.text


def test_a_request_has_the_trace_id_that_its_client_gives_or_one_that_is_drawn() -> None:
    seen = []

    async def noting(scope, receive, send) -> None:
        seen.append(trace_id.get())
        await ok(scope, receive, send)

    app = PageGuard(noting, names_of((), ()), 10, lambda text, kind: None, lambda size: "ab" * size)
    given = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for value in (given, b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01", b"nonsense"):
        _, headers, _, _ = asyncio.run(answer(app, "GET", [(b"host", b"localhost"), (b"traceparent", value)], []))
        assert headers[b"x-trace-id"].decode() == seen[-1]
    assert seen == ["0af7651916cd43dd8448eb211c80319c", "ab" * 16, "ab" * 16]
    assert trace_id.get() == ""


def test_body_that_is_too_long_to_wait_for_is_not_read() -> None:
    length = (b"content-length", b"%d" % (DISCARDED_BYTES_MAX + 1))
    assert asyncio.run(answer(WholeBodies(ok), "PUT", [length], [b"x"]))[3] == 0
    expecting = [(b"content-length", b"1"), (b"expect", b"100-continue")]
    assert asyncio.run(answer(WholeBodies(ok), "PUT", expecting, [b"x"]))[3] == 0


def test_requests_under_way_are_counted_until_they_end_however_they_end() -> None:
    async def main() -> None:
        go, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def waiting(scope, receive, send) -> None:
            begun.release()
            await go.wait()
            raise ValueError

        app = PageGuard(waiting, names_of((), ()), 2, lambda text, kind: None, lambda size: "ab" * size)
        running = [asyncio.ensure_future(answer(app, "GET", [], [])) for _ in range(2)]
        for _ in running:
            await begun.acquire()
        status, headers, body, _ = await answer(app, "GET", [], [])
        assert (status, headers[b"retry-after"]) == (503, b"5")
        assert "2 HTTP requests" in json.loads(body)["reason"]
        go.set()
        assert [type(one) for one in await asyncio.gather(*running, return_exceptions=True)] == [ValueError, ValueError]
        again = asyncio.ensure_future(answer(app, "GET", [], []))
        assert isinstance((await asyncio.gather(again, return_exceptions=True))[0], ValueError)

    asyncio.run(main())


def test_who_is_cut_off_is_answered_here_and_nowhere_below() -> None:
    async def main() -> None:
        begun = asyncio.Semaphore(0)

        async def waiting(scope, receive, send) -> None:
            begun.release()
            await asyncio.Event().wait()

        async def answering(scope, receive, send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await waiting(scope, receive, send)

        found = []
        for app in (waiting, answering):
            sent = []

            async def send(message, sent=sent) -> None:
                sent.append(message)

            guard = PageGuard(app, names_of((), ()), 1, lambda text, kind: None, lambda size: "ab" * size)
            task = asyncio.ensure_future(guard(scope("POST", [(b"content-length", b"6")]), None, send))
            await begun.acquire()
            task.cancel()
            await task
            found.append([message.get("status", message.get("body")) for message in sent])
        assert found == [[503, b'{"reason":"the broker is stopping"}'], [200]]

    asyncio.run(main())


def test_requests_beyond_the_rate_of_all_are_told_to_come_back() -> None:
    told: list[tuple[str, str]] = []
    rate = RequestRate(2, lambda: 0.0)
    app = PageGuard(
        ok, names_of((), ()), 10, lambda text, kind: told.append((kind, text)), lambda size: "ab" * size, None, rate
    )
    headers = [(b"host", b"localhost"), (b"origin", b"http://evil.example"), (b"content-length", b"6")]
    # Pages that are refused count, too.
    assert [asyncio.run(answer(app, "POST", headers, [b"abc", b"def"]))[0] for _ in range(2)] == [403, 403]
    status, found, body, taken = asyncio.run(answer(app, "POST", headers, [b"abc", b"def"]))
    assert (status, taken) == (429, 2)
    assert json.loads(body) == {"reason": "Too Many Requests"}
    assert found[b"retry-after"]
    assert [kind for kind, _ in told] == ["page", "page", "rate"]


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_request_comes_from_where_a_trusted_balancer_says(is_trusted: bool) -> None:
    seen = []

    async def noting(scope, receive, send) -> None:
        seen.append(scope.get("client"))
        await ok(scope, receive, send)

    app = PageGuard(
        noting, names_of((), ()), 10, lambda text, kind: None, lambda size: "ab" * size, trusts_forwarded=is_trusted
    )
    for value in (b"203.0.113.7, 10.0.0.1", b"nobody"):
        asyncio.run(answer(app, "GET", [(b"host", b"localhost"), (b"x-forwarded-for", value)], []))
    assert seen == [("203.0.113.7", 0) if is_trusted else None, None]
