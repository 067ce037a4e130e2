"""``geminga admin topics stats | stats-internal``, and how the other admin commands ask: over a broker's admin REST."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import typer

from geminga.app.commands.client_security import add_security, said_security

DEFAULT_ADMIN_URL: Final = "http://localhost:8080"
#: Seconds a broker may take to answer.
TIMEOUT_S: Final = 10.0
#: Brokers that one request may be sent on to.
REDIRECTS_MAX: Final = 5

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Ask a running broker.")
add_security(commands)
_topics = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Topics.")
commands.add_typer(_topics, name="topics")

Topic = Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")]
AdminUrl = Annotated[
    str, typer.Option("--admin-url", envvar="GEMINGA_ADMIN_URL", metavar="URL", help="http://host:port of the broker.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the broker's JSON as it is.")]


@_topics.command("stats")
def stats(topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False) -> None:
    """Show rates, backlog, producers and subscriptions."""
    _show(topic, "stats", admin_url, is_json)


@_topics.command("stats-internal")
def stats_internal(topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False) -> None:
    """Show ledgers and cursors: mark-delete, read position, holes, segments, last marker, memory; deduplication."""
    _show(topic, "internalStats", admin_url, is_json)


def _show(topic: str, what: str, admin_url: str, is_json: bool) -> None:
    from geminga.app.commands.documents import render

    print(render(ask(admin_url, f"{_path(topic)}/{what}"), is_json=is_json))


def _path(topic: str) -> str:
    from geminga.model import TopicName

    domain = "persistent" if TopicName.parse(topic).is_persistent else "non-persistent"
    return f"/admin/v2/{domain}/{place_of(topic)}"


def place_of(topic: str) -> str:
    """``tenant/namespace/topic`` as it stands in paths; raises InvalidTopicNameError."""
    from urllib.parse import quote

    from geminga.model import TopicName

    name = TopicName.parse(topic)
    return f"{name.namespace}/{quote(name.local_name, safe='')}"


class _Elsewhere(NamedTuple):
    """Another broker answers that."""

    url: str


def ask(admin_url: str, path: str, method: str = "GET", body: object = None) -> object:
    """The answer's JSON, None for none; raises UnavailableError or NotFoundError with what the broker says.

    Follows the broker to who serves the topic, whatever the method: urllib does so for GET alone.
    """
    url = f"{admin_url.rstrip('/')}{path}"
    for _ in range(REDIRECTS_MAX):
        answer = _ask_once(url, method, body)
        if not isinstance(answer, _Elsewhere):
            return answer
        if url.startswith("https:") and not answer.url.startswith("https:"):
            # Credentials would go on in the clear.
            from geminga.model.errors import UnavailableError

            raise UnavailableError(f"{url}: sent on to {answer.url}, which has no TLS")
        url = answer.url
    from geminga.model.errors import UnavailableError

    raise UnavailableError(f"{admin_url.rstrip('/')}{path}: sent on more than {REDIRECTS_MAX} times, at last to {url}")


def _ask_once(url: str, method: str, body: object) -> object:
    import json
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    from geminga.model.errors import NotFoundError, UnavailableError

    class Stay(HTTPRedirectHandler):
        """Who sends a request on is followed above, whatever the method."""

        def redirect_request(self, *_: object) -> None:
            return None

    said, context = said_security().http(url)
    if body is not None:
        said["Content-Type"] = "application/json"
    data = b"" if method != "GET" and body is None else None if body is None else json.dumps(body).encode()
    opener = build_opener(Stay) if context is None else build_opener(Stay, HTTPSHandler(context=context))
    try:
        with opener.open(Request(url, data, said, method=method), timeout=TIMEOUT_S) as response:
            text = response.read()
            return json.loads(text) if text else None
    except HTTPError as error:
        place = error.headers.get("Location", "")
        if error.code == 307 and place.startswith(("http://", "https://")):
            return _Elsewhere(place)
        reason = error.read().decode(errors="replace")
        try:
            reason = json.loads(reason)["reason"]
        except (ValueError, KeyError, TypeError):
            pass
        kind = NotFoundError if error.code == 404 else UnavailableError
        raise kind(f"{url}: {error.code} {reason}") from error
    except (URLError, OSError) as error:
        raise UnavailableError(f"no answer from {url}: {error}") from error
