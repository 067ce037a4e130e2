"""Who a client says it is: tokens from wherever they come, plugins with their parameters, issuers of OAuth 2.0."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Iterator

import pytest

from geminga.client import (
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
    ErrorGettingAuthenticationData,
    InvalidConfiguration,
    authentication_from,
    http_headers,
)
from geminga.client._api import oauth2
from geminga.client._api.oauth2 import parse_flow
from geminga.client._transport.handshake import Handshake
from support.processes.token_issuer import Issuer
from support.processes.web_answers import DRIPPING, NO_ANSWERS, Dripping, RawAnswers, WebAnswers

JAVA = "org.apache.pulsar.client.impl.auth"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def test_token_is_a_text_a_file_a_function_or_a_coroutine(tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text("of the file\n")
    assert AuthenticationToken("plain").data() == AuthenticationToken("token:plain").data() == b"plain"
    from_file = AuthenticationToken(f"file://{file}")
    assert from_file.data() == b"of the file"
    file.write_text("another")
    assert from_file.data() == b"another"
    assert AuthenticationToken(lambda: "made").data() == b"made"

    async def awaited() -> str:
        return "awaited"

    async def main() -> bytes:
        data = AuthenticationToken(awaited).data()
        assert not isinstance(data, bytes)
        return await data

    assert asyncio.run(main()) == b"awaited"


@pytest.mark.parametrize("folder", ["a b", "ü#1?", "100%", "a%20b"])
def test_a_token_may_lie_anywhere(tmp_path, folder: str) -> None:
    file = tmp_path / folder / "token"
    file.parent.mkdir()
    file.write_text("of the file\n")
    for url in (file.as_uri(), f"file://{file}", f"file:{file}"):
        assert AuthenticationToken(url).data() == b"of the file"
    with pytest.raises(FileNotFoundError):
        AuthenticationToken(f"file://{file}-else").data()


@pytest.mark.parametrize(
    ("plugin", "parameters", "kind", "data"),
    [
        ("token", "token:abc", AuthenticationToken, b"abc"),
        (f"{JAVA}.AuthenticationToken", "abc", AuthenticationToken, b"abc"),
        ("AuthenticationToken", '{"token": "abc"}', AuthenticationToken, b"abc"),
        (f"{JAVA}.AuthenticationBasic", '{"userId": "u", "password": "p"}', AuthenticationBasic, b"u:p"),
        ("basic", "u:p:q", AuthenticationBasic, b"u:p:q"),
        ("basic", "userId:u,password:p", AuthenticationBasic, b"u:p"),
        (f"{JAVA}.AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k", AuthenticationTLS, b""),
        ("tls", '{"tlsCertFile": "/c", "tlsKeyFile": "/k"}', AuthenticationTLS, b""),
    ],
)
def test_plugin_of_pulsars_name_takes_pulsars_parameters(plugin: str, parameters: str, kind: type, data: bytes) -> None:
    found = authentication_from(plugin, parameters)
    assert isinstance(found, kind)
    assert found.data() == data
    if isinstance(found, AuthenticationTLS):
        assert (found.certificate_path, found.private_key_path) == ("/c", "/k")


def test_no_plugin_and_the_one_that_is_off_are_nobody() -> None:
    assert authentication_from("", "") is None
    assert authentication_from(f"{JAVA}.AuthenticationDisabled", "") is None


@pytest.mark.parametrize("given", [None, b"hidden1", 5])
def test_function_that_gives_no_token_is_told_and_what_it_gave_is_not(given: object) -> None:
    """It was that an object can not be used in an await expression."""

    async def give() -> object:
        return given

    kind = type(given).__name__
    told = f"the function that gives the token gave {kind}: expected text"
    with pytest.raises(ErrorGettingAuthenticationData, match=told):
        AuthenticationToken(lambda: given).data()  # type: ignore[arg-type, return-value]
    for made in (give, lambda: give()):
        data = AuthenticationToken(made).data()  # type: ignore[arg-type]
        assert not isinstance(data, bytes)
        with pytest.raises(ErrorGettingAuthenticationData, match=told):
            asyncio.run(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plugin", "parameters", "told"),
    [
        ("", "hidden1", "without a plugin"),
        (None, "hidden1", "plugin=None: expected text"),
        ("token", None, "parameters=<NoneType>: expected text"),
        ("token", b"hidden1", "parameters=<bytes>: expected text"),
        (f"{JAVA}.AuthenticationAthenz", "hidden1", "AuthenticationAthenz' is not built; expected AuthenticationToken"),
        ("com.example.AuthenticationToken", "hidden1", "com.example.AuthenticationToken' is not built"),
        ("token", "token:", "expected token:TEXT or file"),
        ("tls", "hidden1", "expected tlsCertFile:PATH,tlsKeyFile:PATH"),
        ("basic", "hidden1", 'expected {"userId"'),
        ("basic", '{"hidden1', "are no JSON"),
        ("basic", '{"hidden1":' * 100_000, "are no JSON"),
        ("oauth2", '{"hidden1":' * 100_000, "is no JSON object"),
        ("oauth2", "hidden1", "is no JSON object"),
        ("oauth2", '{"type": "password"}', "the flow 'password' is not built"),
        ("oauth2", '{"issuer_url": "ftp://hidden1"}', "issuer_url is not the http or https URL"),
        ("oauth2", '{"issuer_url": "http://i", "client_secret": "hidden1"}', "client_id and client_secret are needed"),
        ("oauth2", '{"issuer_url": "http://i", "private_key": "/nowhere"}', "private_key=/nowhere: No such file"),
        ("oauth2", '{"issuer_url": "http://i", "private_key": "data:hidden1"}', "is no data URL"),
    ],
)
def test_parameters_that_can_not_be_are_told_and_never_repeated(plugin: str, parameters: str, told: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        authentication_from(plugin, parameters)
    assert told in str(caught.value)
    assert "hidden1" not in str(caught.value)


def test_credentials_are_shown_nowhere(issuer: Issuer) -> None:
    made = [
        AuthenticationToken("hidden1"),
        AuthenticationBasic("u", "hidden1"),
        AuthenticationOauth2(issuer.parameters()),
        parse_flow(issuer.parameters()),
    ]
    assert "hidden1" not in "".join(map(repr, made)) + "".join(map(str, made))


@pytest.mark.parametrize("spelling", ["issuer_url private_key", "issuerUrl privateKey"])
@pytest.mark.parametrize("place", ["file", "data", "path"])
def test_credentials_come_from_the_file_of_the_official_clients(tmp_path, spelling: str, place: str) -> None:
    text = json.dumps({"type": "client_credentials", "client_id": "me", "client_secret": "hidden1"})
    file = tmp_path / "credentials.json"
    file.write_text(text)
    where = {
        "file": f"file://{file}",
        "data": f"data:application/json;base64,{base64.b64encode(text.encode()).decode()}",
        "path": str(file),
    }[place]
    issuer_name, key_name = spelling.split()
    flow = parse_flow(json.dumps({issuer_name: "https://issuer/", key_name: where, "audience": "a", "scope": "s"}))
    assert flow == ("https://issuer", "me", "hidden1", "a", "s", "")


def test_issuer_is_asked_once_and_again_before_the_token_expires(issuer: Issuer) -> None:
    authentication = AuthenticationOauth2(issuer.parameters(audience="urn:pulsar", scope="s"))
    assert authentication.is_blocking
    assert authentication.data() == b"token-1"
    assert not authentication.is_blocking
    assert authentication.data() == b"token-1"
    assert [path for path, _ in issuer.asked] == ["/.well-known/openid-configuration", "/oauth/token"]
    assert issuer.asked[1][1] == {
        "grant_type": "client_credentials",
        "client_id": "me",
        "client_secret": "hidden1",
        "audience": "urn:pulsar",
        "scope": "s",
    }
    issuer.life_s = 1e-9
    brief = AuthenticationOauth2(issuer.parameters())
    assert [brief.data(), brief.data()] == [b"token-2", b"token-3"]
    # The endpoint is known by then.
    assert [path for path, _ in issuer.asked[-3:]] == [
        "/.well-known/openid-configuration",
        "/oauth/token",
        "/oauth/token",
    ]


def test_broker_that_asks_gets_another_token_unless_it_is_new(issuer: Issuer) -> None:
    authentication = AuthenticationOauth2(issuer.parameters())
    assert authentication.data() == b"token-1"
    authentication.renew()
    assert not authentication.is_blocking
    issuer.life_s = 1e-9
    brief = AuthenticationOauth2(issuer.parameters())
    assert brief.data() == b"token-2"
    issuer.life_s = 3600
    brief.renew()
    assert brief.is_blocking
    assert [brief.data(), brief.data()] == [b"token-3", b"token-3"]
    # Challenged, it is asked again although the token would be used for longer.
    handshake = Handshake(brief, "", "")
    brief._new_until_s = 0.0
    frame = handshake.answer_challenge()
    assert isinstance(frame, bytes)
    assert b"token-4" in frame


def test_issuer_that_refuses_or_talks_nonsense_is_told_without_the_secret(issuer: Issuer) -> None:
    issuer.status = 401
    with pytest.raises(ErrorGettingAuthenticationData, match=r"/oauth/token: 401 invalid_client: who are you$"):
        AuthenticationOauth2(issuer.parameters()).data()
    issuer.status = 200
    for life_s in (0, "soon", True, None, math.inf, math.nan, 10**400):
        issuer.life_s = life_s
        with pytest.raises(ErrorGettingAuthenticationData, match="expires_in is no number"):
            AuthenticationOauth2(issuer.parameters()).data()
    nested = b"[" * 20_000
    for answer, told in ((b"<html>", "no JSON object"), (nested, "no JSON object"), (b"{}", "has no token_endpoint")):
        issuer.answer = answer
        with pytest.raises(ErrorGettingAuthenticationData, match=told):
            AuthenticationOauth2(issuer.parameters()).data()
    issuer.close()
    nobody = json.dumps({"issuer_url": "http://127.0.0.1:1", "client_id": "a", "client_secret": "hidden1"})
    with pytest.raises(ErrorGettingAuthenticationData) as caught:
        AuthenticationOauth2(nobody).data()
    assert "hidden1" not in str(caught.value)


def test_http_has_the_headers_of_the_method(issuer: Issuer) -> None:
    assert http_headers(None) == http_headers(AuthenticationTLS("/c", "/k")) == {}
    assert http_headers(AuthenticationToken("abc")) == {"Authorization": "Bearer abc"}
    assert http_headers(AuthenticationOauth2(issuer.parameters())) == {"Authorization": "Bearer token-1"}
    assert http_headers(AuthenticationBasic("u", "p")) == {
        "Authorization": "Basic dTpw",
        "X-Pulsar-Auth-Method-Name": "basic",
    }

    async def awaited() -> str:
        return "awaited"

    with pytest.raises(InvalidConfiguration, match="can not be used for HTTP"):
        http_headers(AuthenticationToken(awaited))
    with pytest.raises(InvalidConfiguration, match="can not stand in a header") as told:
        http_headers(AuthenticationToken(lambda: "secret\n"))
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_answers_for_an_issuer_and_is_no_web_server_is_told(answer: bytes) -> None:
    with RawAnswers(answer) as raw:
        flow = {"issuer_url": raw.url, "client_id": "c", "client_secret": "s"}
        with pytest.raises(ErrorGettingAuthenticationData, match=raw.url):
            AuthenticationOauth2(json.dumps(flow)).data()


@pytest.mark.parametrize(
    "endpoint", ["http://two..dots/token", "http://[/token", "http://127.0.0.1:x/t", "http://a/\xe9"]
)
def test_an_issuer_whose_tokens_are_at_no_place_is_told(endpoint: str) -> None:
    with WebAnswers() as web:
        web.answers = [(200, json.dumps({"token_endpoint": endpoint}), "")]
        flow = {"issuer_url": web.url, "client_id": "c", "client_secret": "s"}
        with pytest.raises(ErrorGettingAuthenticationData, match="http://"):
            AuthenticationOauth2(json.dumps(flow)).data()


def test_an_issuer_whose_tokens_have_moved_is_asked_where_they_are_now() -> None:
    with WebAnswers() as web:
        web.answers = [
            (200, json.dumps({"token_endpoint": f"{web.url}/old"}), ""),
            (404, "", ""),
            (200, json.dumps({"token_endpoint": f"{web.url}/new"}), ""),
            (200, json.dumps({"access_token": "abc"}), ""),
        ]
        authentication = AuthenticationOauth2(
            json.dumps({"issuer_url": web.url, "client_id": "c", "client_secret": "s"})
        )
        with pytest.raises(ErrorGettingAuthenticationData, match="404"):
            authentication.data()
        assert authentication.data() == b"abc"
        known = "/.well-known/openid-configuration"
        assert [path for path, _ in web.asked] == [known, "/old", known, "/new"]


@pytest.mark.parametrize("begun", DRIPPING.values(), ids=DRIPPING)
def test_an_issuer_that_answers_byte_by_byte_is_waited_for_no_longer_than_the_limit(monkeypatch, begun: bytes) -> None:
    monkeypatch.setattr(oauth2, "ANSWER_S_MAX", 0.1)
    with Dripping(begun) as web:
        flow = {"issuer_url": web.url, "client_id": "c", "client_secret": "s"}
        with pytest.raises(ErrorGettingAuthenticationData, match=web.url):
            AuthenticationOauth2(json.dumps(flow)).data()
