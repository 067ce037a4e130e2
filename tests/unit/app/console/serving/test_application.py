"""The console over HTTP: headers, limits, who may post, what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import geminga
from geminga.app.console.core.addresses import FORM_BYTES_MAX
from geminga.app.console.serving import application
from geminga.app.console.serving.inner_admin import Changes, InnerRequests, visitors_admin
from support.worlds.console import Form, Visitor, notice_of, problem_of
from support.worlds.rest import Rest

TOPIC = "persistent://public/default/t"


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone() as running:
        rest = Rest(running.web_service_url)
        rest.put("persistent/public/default/t")
        rest.put("persistent/public/default/t/subscription/s", {"ledgerId": -1, "entryId": -1})
        yield running


@pytest.fixture
def visitor(broker: geminga.Standalone) -> Iterator[Visitor]:
    with Visitor(broker.web_service_url) as found:
        yield found


@pytest.mark.parametrize(
    "path", ["/", "/topics", "/nothing", "/static/console.css", "/static/nothing", "/acts/nothing"]
)
def test_every_answer_keeps_browsers_from_what_is_not_ours(visitor: Visitor, path: str) -> None:
    headers = visitor.look(path).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
    assert headers["cache-control"] == ("no-cache" if path == "/static/console.css" else "no-store")


def test_pages_have_no_script_or_style_of_their_own(visitor: Visitor) -> None:
    for path in ("/", "/topics", "/login", "/nothing"):
        text = visitor.look(path).text
        assert " style=" not in text
        assert "<style" not in text
        assert " onclick=" not in text
        assert text.count("<script") == 1
        assert "></script>" in text
        assert text.count("<h1") == 1


def test_a_file_of_the_look_is_kept_under_its_hash(visitor: Visitor) -> None:
    page = visitor.look("/").text
    address = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = visitor.browser.get(address)
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    again = visitor.browser.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_part_of_a_page_is_answered_alone(visitor: Visitor) -> None:
    part = visitor.look("/topics", part="topics")
    assert part.status_code == 200
    assert part.text.strip().startswith("<div")
    assert "<html" not in part.text
    assert problem_of(visitor.look("/topics", part="nothing")) == "This page has no part &#39;nothing&#39;."


def test_the_cookie_is_for_the_console_alone(visitor: Visitor) -> None:
    said = visitor.look("/").headers["set-cookie"]
    assert "HttpOnly" in said
    assert "Path=/console" in said
    assert "SameSite=Strict" in said


def cleared(visitor: Visitor) -> Form:
    return visitor.ask("clear-backlog", topic=TOPIC, subscription="s")[1]


@pytest.mark.parametrize("token", ["", "0" * 64])
def test_a_form_that_the_console_did_not_make_is_refused(visitor: Visitor, token: str) -> None:
    answer = visitor.send(cleared(visitor), {"token": token})
    assert answer.status_code == 403
    assert problem_of(answer).startswith("This form is too old")


def test_a_form_of_another_visitor_is_refused(visitor: Visitor, broker: geminga.Standalone) -> None:
    with Visitor(broker.web_service_url) as other:
        assert other.send(cleared(visitor)).status_code == 403


def test_a_foreign_page_posts_nothing(visitor: Visitor) -> None:
    form = cleared(visitor)
    answer = visitor.browser.post(form.action, data=form.fields, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "evil.example" in answer.text


def test_an_act_is_not_done_by_a_link(visitor: Visitor) -> None:
    form = cleared(visitor)
    answer = visitor.browser.get(form.action, params=form.fields)
    assert notice_of(answer) == ""
    assert "question" in answer.text


def test_words_of_a_link_are_no_notice(visitor: Visitor) -> None:
    assert notice_of(visitor.send(cleared(visitor))) != ""
    assert notice_of(visitor.look("/topics", done="All is gone.", seal="0" * 64)) == ""


def test_a_form_that_is_too_large_is_refused(visitor: Visitor) -> None:
    answer = visitor.send(cleared(visitor), {"more": "x" * FORM_BYTES_MAX})
    assert answer.status_code == 413
    assert problem_of(answer).startswith("A form has at most")


def test_a_form_of_another_kind_is_refused(visitor: Visitor) -> None:
    answer = visitor.browser.post("/console/acts/clear-backlog", json={"topic": TOPIC})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/topics?namespace=none/none", 404),
        ("/topics?namespace=nonsense", 400),
        ("/topics?page=x", 400),
        ("/topics?page=0", 400),
        ("/acts/clear-backlog?topic=persistent://a&subscription=s", 400),
        ("/acts/clear-backlog?topic=persistent://public/default/t&subscription=none", 404),
        (f"/topics?{'&'.join(f'a{n}=' for n in range(300))}", 413),
    ],
)
def test_what_can_not_be_is_one_sentence(visitor: Visitor, path: str, status: int) -> None:
    answer = visitor.look(path) if "?" not in path else visitor.browser.get(f"/console{path}")
    assert answer.status_code == status
    assert problem_of(answer).endswith(".")


def test_methods_and_paths_that_are_not(visitor: Visitor) -> None:
    assert visitor.browser.put("/console/topics").status_code == 405
    page = visitor.look("/acts/clear-backlog", topic=TOPIC, subscription="s").text
    token = page.partition('name="token" value="')[2].partition('"')[0]
    assert visitor.browser.post("/console/topics", data={"token": token}).status_code == 405
    assert visitor.browser.get("/console").url.path == "/console/"
    assert visitor.browser.get("/consoles").headers["content-type"] == "application/json"


def test_so_many_pages_are_made_at_a_time(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "PAGES_MAX", 0)
    answer = visitor.look("/")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == str(application.RETRY_AFTER_S)
    assert visitor.look("/static/console.css").status_code == 200


def test_another_broker_is_asked_where_the_administration_sends_on(broker: geminga.Standalone) -> None:
    seen: list[str] = []

    async def elsewhere(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        place = f"{broker.web_service_url}{scope['path']}".encode()
        await send({"type": "http.response.start", "status": 307, "headers": [(b"location", place)]})
        await send({"type": "http.response.body", "body": b""})

    async def story() -> list[str]:
        scope = {"asgi": {}, "scheme": "http", "headers": []}
        requests = InnerRequests(elsewhere, scope, "", lambda: None, Changes())
        found = await visitors_admin(requests).topics.list("public/default")
        await requests.close()
        return list(found)

    assert TOPIC in asyncio.run(story())
    assert seen == ["/admin/v2/persistent/public/default"]


def test_a_page_that_breaks_is_a_sentence_and_a_line_in_the_log(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(application.Console, "_found", broken)
    answer = visitor.look("/broken")
    assert answer.status_code == 503
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "ZeroDivisionError" in caplog.text


def test_a_page_has_its_time(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    form = cleared(visitor)
    monkeypatch.setattr(application, "PAGE_S_MAX", 0)
    answer = visitor.look("/")
    assert (answer.status_code, problem_of(answer)) == (504, "This page was not made within 0 seconds.")
    cut = visitor.send(form)
    assert cut.status_code == 504
    assert problem_of(cut).endswith("Whether it was done is not known: look before it is repeated.")


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a&b\"'", "..", "a b+c%2F"])
def test_names_are_shown_and_never_run(visitor: Visitor, broker: geminga.Standalone, name: str) -> None:
    from geminga.admin import _paths

    topic = f"persistent://public/default/{name}"
    assert Rest(broker.web_service_url).put(f"/admin/v2/{_paths.topic(topic)}").status == 204
    text = visitor.look("/topics", q=name).text
    assert "<script>alert" not in text
    assert "No topic." not in text
