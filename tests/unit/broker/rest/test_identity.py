"""Who sends a request, from its headers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from geminga.broker.access.anonymous import OPEN
from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.access.ports import Access
from geminga.broker.rest.identity import METHOD_HEADER, ORIGINAL_HEADER, principal_of
from geminga.model.errors import AuthenticationError
from geminga.proxy.core.http_rules import request_headers
from support.house.deciding import Denying, Secrets

WORDS = {b"Bearer open": "jane", b"Bearer gate": "proxy"}


def principal(access: Access, **headers: str) -> Principal:
    return known(access, [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()])


def known(access: Access, raw: list[tuple[bytes, bytes]]) -> Principal:
    application = SimpleNamespace(state=SimpleNamespace(context=SimpleNamespace(access=access)))
    return asyncio.run(principal_of(Request({"type": "http", "headers": raw, "app": application})))


def asked_for(raw: list[tuple[bytes, bytes]]) -> Principal:
    return known(access_of(Secrets(WORDS)), raw)


def access_of(secrets: Secrets) -> Access:
    return Access(authenticator=secrets, authorizer=Denying(), proxy_roles=frozenset({"proxy"}))


def test_everybody_is_anonymous_where_nobody_is_asked() -> None:
    assert principal(OPEN, Authorization="Bearer anything", **{ORIGINAL_HEADER: "joe"}) == ANONYMOUS


@pytest.mark.parametrize("is_slow", [False, True])
def test_sender_is_known_by_the_header_for_it(is_slow: bool) -> None:
    access = access_of(Secrets(WORDS, is_slow=is_slow))
    assert principal(access, Authorization="Bearer open", **{METHOD_HEADER: "token"}) == Principal("jane")
    assert principal(access, Authorization="Bearer gate", **{ORIGINAL_HEADER: "joe"}) == Principal("proxy", "joe")


@pytest.mark.parametrize("role", ["jürgen", "Łukasz", "花子"])
def test_whom_a_proxy_asks_for_is_read_as_it_was_said_in_any_script(role: str) -> None:
    """Of the proxy here; Pulsar's says characters of one byte so, and none of the others."""
    (said,) = [
        value
        for name, value in request_headers([], is_authenticated=True, role=role, own=[], host="")
        if name == ORIGINAL_HEADER.lower().encode()
    ]
    gate = (b"authorization", b"Bearer gate")
    assert asked_for([gate, (b"x-original-principal", said)]) == Principal("proxy", role)
    assert asked_for([gate, (b"x-original-principal", "jürgen".encode("latin-1"))]) == Principal("proxy", "jürgen")


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, "a wrong word"),
        ({"Authorization": "Bearer wrong"}, "a wrong word"),
        ({"Authorization": "Bearer open", ORIGINAL_HEADER: "joe"}, "who is no proxy asks for itself alone"),
        ({"Authorization": "Bearer gate"}, "a proxy must say for whom it asks"),
    ],
)
def test_unknown_sender_is_refused(headers: dict[str, str], told: str) -> None:
    with pytest.raises(AuthenticationError, match=told) as raised:
        principal(access_of(Secrets(WORDS)), **headers)
    assert raised.value.http_status == 401


def test_sender_that_would_have_to_be_challenged_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="in one round"):
        principal(access_of(Secrets(WORDS, challenges=True)), Authorization="Bearer open")
