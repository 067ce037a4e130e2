"""What the application is made of: logging in, templates, files of the look, the way to the administration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from geminga.admin import AdminError, NotAvailableError, UnreachableError
from geminga.app.console.serving import inner_admin, rendering, static_files
from geminga.app.console.serving.inner_admin import Changes, InnerRequests, visitors_admin
from geminga.app.console.serving.logging_in import authorization_of
from geminga.app.console.serving.visitors import Visitors
from geminga.app.console.tables import Refusal, Rendered
from geminga.runtime import next_turn

SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "scheme": "https",
    "headers": [(b"host", b"here"), (b"cookie", b"a=b"), (b"origin", b"https://x")],
    "client": ("10.0.0.1", 5),
    "server": ("here", 443),
    "state": {"certificate": b"c"},
}


def test_a_login_says_who_it_is() -> None:
    assert authorization_of({"credentials": " a.b.c\n"}) == "Bearer a.b.c"
    assert authorization_of({"user": "joe", "password": "p:w"}) == "Basic am9lOnA6dw=="


@pytest.mark.parametrize(
    "form", [{}, {"credentials": "a b"}, {"credentials": "ä"}, {"user": "a:b"}, {"credentials": "a", "user": "b"}]
)
def test_a_login_that_says_nothing_good_is_refused(form: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        authorization_of(form)


def test_logging_in_gives_a_new_name() -> None:
    drawn = iter(range(100))
    visitors = Visitors(lambda size: f"{next(drawn):0{2 * size}x}", lambda: 0.0)
    before = visitors.log_in("x")
    after = visitors.log_in("x")
    assert before.name != after.name
    assert visitors.form_token(before) != visitors.form_token(after)
    assert not visitors.is_own_form(after, visitors.form_token(before))
    assert not visitors.is_own_notice(after, "a", visitors.notice_seal(before, "a"))


def test_templates_escape_and_miss_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "macros.html").write_text("{% macro m(x) %}[{{ x }}]{% endmacro %}")
    (tmp_path / "p.html").write_text("<p>{% block part_a %}{{ ui.m(x) }}{% endblock %}{{ y }}")
    monkeypatch.setattr(rendering, "TEMPLATES", tmp_path)
    templates = rendering.environment()
    page = Rendered("p.html", {"x": "<b>"})
    assert rendering.rendered(templates, page, {"y": "&"}, "") == "<p>[&lt;b&gt;]&amp;"
    assert rendering.rendered(templates, page, {"y": "&"}, "a") == "[&lt;b&gt;]"
    with pytest.raises(rendering.UndefinedError):
        rendering.rendered(templates, page, {}, "")
    with pytest.raises(Refusal, match="no part"):
        rendering.rendered(templates, page, {}, "b")


def test_files_of_the_look_have_a_hash(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_bytes(b"a{}")
    (tmp_path / "note.txt").write_bytes(b"x")
    found = static_files.static_files(tmp_path)
    assert list(found) == ["a.css"]
    (tmp_path / "a.css").write_bytes(b"b{}")
    assert static_files.static_files(tmp_path)["a.css"].etag != found["a.css"].etag


def asked(application: Any, authorization: str = "") -> Any:
    return asyncio.run(_asked(application, authorization))


async def _asked(application: Any, authorization: str) -> Any:
    requests = InnerRequests(application, SCOPE, authorization, lambda: None, Changes())
    return await visitors_admin(requests).topics.list("a/b")


def test_the_administration_is_asked_as_the_visitor() -> None:
    seen: dict[str, Any] = {}

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'["t', "more_body": True})
        await send({"type": "http.response.body", "body": b'"]'})

    assert asked(application, "Bearer x") == ["t"]
    headers = dict(seen["headers"])
    assert headers[b"authorization"] == b"Bearer x"
    assert b"cookie" not in headers
    assert b"origin" not in headers
    assert (seen["raw_path"], seen["query_string"]) == (b"/admin/v2/persistent/a/b", b"includeSystemTopic=false")
    assert (seen["client"], seen["state"], seen["scheme"]) == (SCOPE["client"], SCOPE["state"], "https")
    assert seen["state"] is not SCOPE["state"]


def test_an_answer_that_does_not_come_or_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        await receive()

    async def endless(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": True})

    monkeypatch.setattr(inner_admin, "REQUEST_S_MAX", 0.0)
    with pytest.raises(UnreachableError, match="no answer within"):
        asked(silent)
    monkeypatch.setattr(inner_admin, "REQUEST_S_MAX", 10.0)
    monkeypatch.setattr(inner_admin, "ANSWER_BYTES_MAX", 10_000)
    with pytest.raises(AdminError, match="more than 10,000 bytes"):
        asked(endless)


def test_credentials_go_nowhere_in_the_clear() -> None:
    async def elsewhere(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 307, "headers": [(b"location", b"http://other:8080/x")]})
        await send({"type": "http.response.body", "body": b""})

    with pytest.raises(AdminError, match="no address that can be asked"):
        asked(elsewhere, "Bearer x")


def test_a_broker_that_does_not_answer_is_not_asked_again_for_a_page() -> None:
    asyncio.run(silent_elsewhere())


async def silent_elsewhere() -> None:
    accepted = 0

    def hang_up(_reader: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def elsewhere(_scope: Any, _receive: Any, send: Any) -> None:
            place = b"http://127.0.0.1:%d/x" % port
            await send({"type": "http.response.start", "status": 307, "headers": [(b"location", place)]})
            await send({"type": "http.response.body", "body": b""})

        requests = InnerRequests(elsewhere, {**SCOPE, "scheme": "http"}, "", lambda: None, Changes())
        topics = visitors_admin(requests).topics
        with pytest.raises(UnreachableError, match="no answer"):
            await topics.list("a/b")
        with pytest.raises(UnreachableError, match="did not answer a moment ago"):
            await topics.list("a/b")
        await requests.close()
        assert accepted == 1


def test_so_many_requests_of_a_page_are_under_way() -> None:
    asyncio.run(so_many())


async def so_many() -> None:
    running = most = 0
    release = asyncio.Event()

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[]"})

    requests = InnerRequests(application, SCOPE, "", lambda: None, Changes())
    admin = visitors_admin(requests)
    asking = asyncio.gather(*(admin.topics.list("a/b") for _ in range(40)))
    for _ in range(5):
        await next_turn()
    assert running == inner_admin.AT_ONCE_MAX
    release.set()
    await asking
    assert most == inner_admin.AT_ONCE_MAX


# ---- changes go on


class Slow:
    """An administration whose answers wait for a word."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.began = 0
        self.ended: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.began += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append(f"{scope['method']} cut off")
            raise
        self.ended.append(f"{scope['method']} done")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await next_turn()


@pytest.mark.parametrize("by", ["its own deadline", "the page's"])
def test_a_change_that_nobody_waits_for_any_more_is_made(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an unload is a topic that nobody can load again."""

    async def story() -> None:
        slow = Slow()
        requests = InnerRequests(slow, SCOPE, "", lambda: None, Changes())
        deletion = asyncio.ensure_future(visitors_admin(requests).topics.delete("persistent://a/b/c"))
        await turns()
        assert slow.began == 1
        if by == "the page's":
            deletion.cancel()
        await asyncio.wait([deletion])
        if by == "its own deadline":
            assert isinstance(deletion.exception(), UnreachableError)
        await turns()
        assert slow.ended == []
        slow.go_on.set()
        await turns()
        assert slow.ended == ["DELETE done"]

    monkeypatch.setattr(inner_admin, "REQUEST_S_MAX", 0.05 if by == "its own deadline" else 10.0)
    asyncio.run(story())


def test_changes_that_go_on_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        slow, changes = Slow(), Changes()

        def deletion() -> asyncio.Future[None]:
            requests = InnerRequests(slow, SCOPE, "", lambda: None, changes)
            return asyncio.ensure_future(visitors_admin(requests).topics.delete("persistent://a/b/c"))

        left = [deletion() for _ in range(3)]
        await turns()
        for one in left:
            one.cancel()
        await asyncio.wait(left)
        with pytest.raises(NotAvailableError, match="3 changes are being made already"):
            await deletion()
        assert slow.began == 3
        slow.go_on.set()
        await turns()
        await deletion()
        assert slow.ended == 4 * ["DELETE done"]

    monkeypatch.setattr(inner_admin, "CHANGES_MAX", 3)
    asyncio.run(story())
