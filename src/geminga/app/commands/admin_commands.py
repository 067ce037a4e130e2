"""How commands outside ``geminga admin`` ask a broker's admin REST, and what they share with it: options and paths."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from geminga.app.commands.client_security import said_security

DEFAULT_ADMIN_URL: Final = "http://localhost:8080"
#: Seconds a broker may take to answer.
TIMEOUT_S: Final = 10.0

Topic = Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")]
AdminUrl = Annotated[
    str, typer.Option("--admin-url", envvar="GEMINGA_ADMIN_URL", metavar="URL", help="http://host:port of the broker.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the broker's JSON as it is.")]


def place_of(topic: str) -> str:
    """``tenant/namespace/topic`` as it stands in paths; raises InvalidTopicNameError."""
    from geminga.admin import _paths

    return _paths.place(topic)


def ask(admin_url: str, path: str, method: str = "GET", body: object = None) -> object:
    """The answer's JSON, None for none; raises UnavailableError or NotFoundError with what the broker says.

    Follows the broker to who serves the topic, whatever the method, but not out of TLS: credentials would go on in the
    clear.
    """
    from geminga.admin import errors
    from geminga.admin._http import HttpCaller
    from geminga.admin._request import Request, answer_to
    from geminga.model.errors import NotFoundError, UnavailableError

    headers, tls = said_security().http(admin_url)
    try:
        caller = HttpCaller(admin_url, timeout_s=TIMEOUT_S, headers=(lambda: headers) if headers else None, tls=tls)
    except ValueError as error:
        raise UnavailableError(f"--admin-url: {error}") from None
    try:
        return answer_to(caller, Request(method, path, body=body))
    except errors.NotFoundError as error:
        raise NotFoundError(str(error)) from error
    except errors.AdminError as error:
        raise UnavailableError(str(error)) from error
    finally:
        caller.close()
