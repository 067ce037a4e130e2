"""A command carried out at the broker that its context names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from geminga.admin._http import HttpCaller
from geminga.admin._request import Caller
from geminga.admin.defaults import TIMEOUT_S
from geminga.app.administration.arguments import Given, UsageError
from geminga.app.administration.command import Command
from geminga.app.administration.session import ASKING, Session, question_of, request_of
from geminga.app.commands.credentials import ClientSecurity

#: Seconds of the longest that a command waits for an answer; sockets take no number that is much larger.
TIMEOUT_S_MAX: Final = 365 * 86_400


def answered(command: Command, given: Given, fields: Mapping[str, str], *, asks: bool) -> Any:  # noqa: ANN401
    """What the broker says. Raises UsageError, AdminError, FailedError, and what credentials raise.

    ``fields``: those of a context; ``asks``: whether there is a question before what can not be undone.
    """
    timeout_s = given.common.get("timeout") or TIMEOUT_S
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise UsageError(f"--request-timeout: expected 1s to {TIMEOUT_S_MAX // 86_400}d, not {timeout_s} seconds")
    caller = caller_of(fields, timeout_s)
    try:
        return carried_out_by(caller, command, given, asks=asks)
    finally:
        caller.close()


def carried_out_by(caller: Caller, command: Command, given: Given, *, asks: bool) -> Any:  # noqa: ANN401
    """The same, asked by ``caller``."""
    common = given.common
    is_agreed = bool(common.get("yes"))
    if command.words == "namespaces clear-backlog":  # which pulsar-admin asks for as well
        is_agreed, asks = is_agreed or bool(given["force"]), True
    session = Session(caller, is_dry=bool(common.get("dry_run")), is_agreed=is_agreed, asks=asks)
    if command.destroys and command.function not in ASKING:
        session.agree(question_of(command, given))
    return _carried_out(session, command, given)


def _carried_out(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    if command.function:
        from geminga.app.administration.special import FUNCTIONS

        return FUNCTIONS[command.function](session, command, given)
    if command.is_by_partition:
        return session.on_each_partition(given.places["topic"], lambda topic: request_of(command, given, topic))
    return session.ask(request_of(command, given))


def caller_of(fields: Mapping[str, str], timeout_s: float) -> HttpCaller:
    """Raises UsageError for an address that is none, and what credentials and files raise."""
    url = fields["admin-url"].rstrip("/")
    security = ClientSecurity(
        fields.get("auth-plugin", ""),
        fields.get("auth-params", ""),
        fields.get("tls-trust-cert-path", ""),
        fields.get("tls-allow-insecure") == "true",
        fields.get("tls-enable-hostname-verification", "true") == "true",
    )
    headers, tls = security.http(url)
    try:
        return HttpCaller(url, timeout_s=timeout_s, headers=(lambda: headers) if headers else None, tls=tls)
    except ValueError as error:
        raise UsageError(f"--admin-url: {error}") from None
