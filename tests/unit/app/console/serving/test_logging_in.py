"""Logging in and out, what of credentials a browser sees, who may do what, and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import geminga
import geminga.admin.blocking
from geminga.client import AuthenticationToken
from support.house.signing import SECRET, in_text, token_of
from support.processes.certificates import Authority
from support.worlds.console import Visitor, browser_at, console_above, forms_of, notice_of, problem_of

TOPIC = "persistent://public/default/kept"
PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class Secured:
    """A broker that takes tokens and certificates, over both kinds of HTTP."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "authority")
        self.client = self.authority.store("certain")
        self.config = {
            "authenticationEnabled": "true",
            "authenticationProviders": f"{PROVIDERS}Token,{PROVIDERS}Tls",
            "tokenSecretKey": in_text(SECRET),
            "authorizationEnabled": "true",
            "superUserRoles": "root,certain",
            "webServicePortTls": 0,
            "tlsCertificateFilePath": self.authority.store("broker", "127.0.0.1"),
            "tlsTrustCertsFilePath": self.authority.certificate,
            "gemingaAuditLogFile": directory / "audit.log",
        }
        self.audit = directory / "audit.log"
        self.broker = geminga.Standalone(config={name: str(value) for name, value in self.config.items()})

    def tls(self, *, shows_certificate: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if shows_certificate:
            context.load_cert_chain(self.client)
        return context


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.broker as broker:
        root = AuthenticationToken(token_of("root").decode())
        with geminga.admin.blocking.connect(broker.web_service_url, authentication=root) as admin:
            admin.topics.create(TOPIC)
            admin.subscriptions.create(TOPIC, "s", "earliest")
            admin.permissions.grant("public/default", "reader", ["consume"])
        yield made


@pytest.fixture
def visitor(secured: Secured) -> Iterator[Visitor]:
    with Visitor(secured.broker.web_service_url) as found:
        yield found


def log_in(visitor: Visitor, role: str, **query: str) -> httpx.Response:
    page = visitor.look("/login", **query)
    form = next(form for form in forms_of(page.text) if form.action.endswith("/login"))
    return visitor.send(form, {"credentials": token_of(role).decode()})


def test_nothing_is_shown_before_the_login(visitor: Visitor) -> None:
    for path in ("/", "/topics", "/topic", "/acts/delete-topic", "/nothing"):
        answer = visitor.look(path, topic=TOPIC)
        assert answer.url.path == "/console/login"
        assert answer.status_code == 200
    part = visitor.look("/topics", part="topics")
    assert (part.status_code, part.text) == (401, "Log in again.\n")


def test_the_login_takes_what_the_broker_takes(visitor: Visitor) -> None:
    page = visitor.look("/login").text
    assert 'name="credentials"' in page
    assert 'name="password"' not in page


def test_who_is_somebody_without_credentials_need_not_log_in() -> None:
    config = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PROVIDERS}Token",
        "tokenSecretKey": in_text(SECRET),
        "anonymousUserRole": "anybody",
        "authorizationEnabled": "true",
        "superUserRoles": "anybody",
    }
    with geminga.Standalone(config=config) as broker, Visitor(broker.web_service_url) as visitor:
        page = visitor.look("/topics")
        assert page.url.path == "/console/topics"
        assert ">Log in</a>" in page.text
        assert "Log out" in log_in(visitor, "reader").text


def test_the_login_leads_where_one_wanted_to_go(visitor: Visitor) -> None:
    wanted = visitor.look("/topic", topic=TOPIC)
    form = next(form for form in forms_of(wanted.text) if form.action.endswith("/login"))
    there = visitor.send(form, {"credentials": token_of("root").decode()})
    assert (there.status_code, there.url.path, there.url.params["topic"]) == (200, "/console/topic", TOPIC)


def test_the_login_leads_nowhere_else(visitor: Visitor) -> None:
    assert log_in(visitor, "root", next="https://evil.example/").url.path == "/console/"
    assert log_in(visitor, "root", next="//evil.example/console/").url.path == "/console/"


def test_credentials_are_not_in_the_browser_and_its_name_is_new(visitor: Visitor) -> None:
    visitor.look("/login")
    before = dict(visitor.browser.cookies)
    page = log_in(visitor, "root")
    assert dict(visitor.browser.cookies) != before
    token = token_of("root").decode()
    assert token not in page.text
    assert token not in str(dict(visitor.browser.cookies))


def test_a_session_ends_with_its_logout(visitor: Visitor) -> None:
    page = log_in(visitor, "root")
    kept = dict(visitor.browser.cookies)
    out = next(form for form in forms_of(page.text) if form.action.endswith("/logout"))
    assert visitor.send(out).url.path == "/console/login"
    for name, value in kept.items():
        visitor.browser.cookies.set(name, value, path="/console")
    assert visitor.look("/topics").url.path == "/console/login"
    assert visitor.look("/logout").status_code == 405


def test_who_logs_in_anew_leaves_no_session_behind(visitor: Visitor, secured: Secured) -> None:
    log_in(visitor, "reader")
    with Visitor(secured.broker.web_service_url, cookies=dict(visitor.browser.cookies)) as other:
        assert other.look("/topics").url.path == "/console/topics"
        log_in(visitor, "root")
        assert other.look("/topics").url.path == "/console/login"


def test_a_name_that_was_there_before_the_login_is_no_session(visitor: Visitor, secured: Secured) -> None:
    visitor.look("/login")
    with Visitor(secured.broker.web_service_url, cookies=dict(visitor.browser.cookies)) as other:
        log_in(visitor, "root")
        assert other.look("/topics").url.path == "/console/login"


def test_who_may_only_read_changes_nothing(visitor: Visitor, secured: Secured) -> None:
    log_in(visitor, "reader")
    assert visitor.look("/").status_code == 200
    assert visitor.look("/topics").status_code == 200
    assert visitor.look("/topic", topic=TOPIC).status_code == 200
    for act in ("delete-topic", "terminate-topic", "unload-topic"):
        asked = visitor.look(f"/acts/{act}", topic=TOPIC)
        answer = visitor.send(visitor.asked(asked)[1]) if asked.status_code == 200 else asked
        assert answer.status_code == 403, act
        assert problem_of(answer).startswith("You may not do this:")
    made = visitor.act("create-topic", {"namespace": "public/default", "name": "mine"})
    assert made.status_code == 403
    log_in(visitor, "root")
    assert "LedgerOpened" in visitor.look("/topic", topic=TOPIC).text
    assert "mine" not in visitor.look("/topics", q="mine").text.partition("<table")[2]


def test_what_is_done_is_in_the_audit_log_with_who_did_it(visitor: Visitor, secured: Secured) -> None:
    log_in(visitor, "root")
    assert notice_of(visitor.act("clear-backlog", topic=TOPIC, subscription="s")) != ""
    (line,) = [line for line in secured.audit.read_text().splitlines() if "skip_all" in line]
    assert '"root"' in line
    assert "127.0.0.1" in line


def test_over_tls_the_cookie_is_for_tls_alone(secured: Secured) -> None:
    url = secured.broker.web_service_url_tls
    with Visitor(url, verify=secured.tls(shows_certificate=False)) as visitor:
        assert "Secure" in visitor.look("/login").headers["set-cookie"]
        assert log_in(visitor, "root").url.path == "/console/"
        assert visitor.look("/topic", topic=TOPIC).status_code == 200


def test_a_certificate_needs_no_login(secured: Secured) -> None:
    url = secured.broker.web_service_url_tls
    with Visitor(url, verify=secured.tls(shows_certificate=True)) as visitor:
        page = visitor.look("/topic", topic=TOPIC)
        assert (page.status_code, page.url.path) == (200, "/console/topic")
        assert notice_of(visitor.act("unload-topic", topic=TOPIC)) != ""


def test_credentials_that_brokers_take_no_more_end_the_session() -> None:
    answers = {"status": 200}

    async def administration(scope, _receive, send) -> None:
        status = answers["status"] if b"authorization" in dict(scope["headers"]) else 401
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"[]"})

    async def story() -> None:
        async with browser_at(console_above(administration)) as browser:
            form = forms_of((await browser.get("/console/login")).text)[0]
            there = await browser.post(form.action, data={**form.fields, "credentials": "a.b.c"})
            assert there.url.path == "/console/"
            assert (await browser.get("/console/topics")).url.path == "/console/topics"
            answers["status"] = 503
            assert (await browser.get("/console/topics")).status_code == 503
            answers["status"] = 401
            assert (await browser.get("/console/topics")).url.path == "/console/login"
            answers["status"] = 200
            assert (await browser.get("/console/topics")).url.path == "/console/login"

    asyncio.run(story())
