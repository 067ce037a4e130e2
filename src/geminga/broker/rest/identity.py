"""Who sends a request: found out as for a connection, from its headers, in one round."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from geminga.broker.access.core.handshake import (
    Accept,
    Challenge,
    Credentials,
    HandshakeMachine,
    Hello,
    Known,
    Refuse,
    Rejected,
    Verify,
    Whose,
)
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Access, Exchange
from geminga.broker.rest.calls.requests import authorization_of, context_of
from geminga.broker.rest.http.http_connection import CERTIFICATE_IN_STATE
from geminga.model.errors import AuthenticationError

#: Headers of Pulsar's: the method's name, and for whom a proxy asks.
METHOD_HEADER: Final = "X-Pulsar-Auth-Method-Name"
ORIGINAL_HEADER: Final = "X-Original-Principal"
#: No time passes within a request's only round.
_NOW_S: Final = 0.0


async def principal_of(request: Request) -> Principal:
    """Who sends it; raises AuthenticationError (401)."""
    return await principal_by(context_of(request).access, request)


async def principal_by(access: Access, request: Request) -> Principal:
    """The same, given who finds it out."""
    until_s: float | None = None
    # A request has no place for what another brought: there a proxy is believed, as in Pulsar.
    rules = access.handshake_rules(1.0)._replace(may_name_itself=True, verifies_original=False)
    machine = HandshakeMachine(rules, _NOW_S)
    exchanges: dict[Whose, Exchange] = {}
    source = f"/{request.client.host}" if request.client is not None else ""
    step = machine.connect(hello_of(request))
    while isinstance(step, Verify):
        exchange = exchanges.setdefault(step.whose, access.authenticator.begin(source, in_http=True))
        answer = exchange.answer(step.credentials)
        verdict = answer if isinstance(answer, Known | Challenge | Rejected) else await answer
        if isinstance(verdict, Known) and verdict.until_s is not None:
            end_s = verdict.until_s + verdict.grace_s
            until_s = end_s if until_s is None else min(until_s, end_s)
        following = machine.verdict(verdict, _NOW_S)
        assert following is not None
        step = following
    if isinstance(step, Accept):
        #: For who keeps what was asked for by whom.
        request.state.principal = step.principal
        #: For who stays: when what was brought ends, by the clock's monotonic time; None: never.
        request.state.until_s = until_s
        return step.principal
    raise AuthenticationError(step.reason if isinstance(step, Refuse) else "Need to authenticate in one round")


def hello_of(request: Request) -> Hello:
    """What the headers say of the one who sends it."""
    headers = request.headers
    certificate: bytes | None = request.scope.get("state", {}).get(CERTIFICATE_IN_STATE)
    credentials = Credentials(headers.get(METHOD_HEADER, ""), authorization_of(request).encode(), certificate)
    return Hello(credentials, _original(headers.get(ORIGINAL_HEADER, "")))


def _original(text: str) -> str:
    """A role as a proxy means it: the one here writes UTF-8, Pulsar's Latin-1, as which a header is read."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
