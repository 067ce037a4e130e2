"""Questions over HTTP that a process without the admin REST answers: an ASGI application without a framework.

Questions alone, so that whoever reaches the port learns of the process and no more; but for the levels of its log,
which who is on this machine, or shows a certificate that the process trusts, may change (:data:`LEVELS_PATH`).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.configuration.core.log_options import parse_levels
from geminga.broker.rest.calls.core.timeouts import RETRY_AFTER_S
from geminga.model.errors import ConfigurationError
from geminga.model.exposition import CONTENT_TYPE, Labels, Page, Source
from geminga.runtime import get_logger

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from geminga.app.lifecycle.log_lines import PackageLevels

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
LEVELS_PATH: Final = "/api/v1/log_levels"
#: Of new levels.
_BODY_BYTES_MAX: Final = 64 * 1024

_log = get_logger(__name__)


class HttpAnswer(NamedTuple):
    """Status, body and media type."""

    status: int
    body: str
    media_type: str = TEXT


class PlainHttp:
    """``/metrics`` of ``sources``, ``/heartbeat``, and whatever ``routes`` answer."""

    def __init__(
        self,
        whose: str,
        sources: Sequence[tuple[Labels, Source]],
        routes: Mapping[str, Callable[[], Awaitable[HttpAnswer]]],
        levels: PackageLevels | None = None,
        *,
        knows_clients: bool = False,
    ) -> None:
        """``whose``: as a refusal names it, such as "bookie". ``levels``: of packages, to be changed here.

        ``knows_clients``: who reaches it has shown a certificate.
        """
        self._levels = levels
        self._knows_clients = knows_clients
        self._whose = whose
        self._sources = sources
        self._routes = {"/metrics": self._metrics, "/heartbeat": self._heartbeat, **routes}
        if levels is not None:
            self._routes[LEVELS_PATH] = self._level_texts

    async def answer(self, method: str, path: str) -> HttpAnswer:
        """To one question."""
        route = self._routes.get(path.rstrip("/"))
        if route is None:
            known = ", ".join(self._routes)
            return HttpAnswer(404, f"{path[:200]} is not served by this {self._whose}; it has {known}\n")
        if method not in ("GET", "HEAD"):
            return HttpAnswer(405, f"{method[:20]} of {path[:200]}: expected GET\n")
        return await route()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        if self._levels is not None and scope["method"] == "PUT" and scope["path"].rstrip("/") == LEVELS_PATH:
            found = await self._change_levels(self._levels, scope, receive)
        else:
            found = await self.answer(scope["method"], scope["path"])
        status, text, media_type = found
        body = text.encode()
        headers = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(body))]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        if status == 503:
            headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _metrics(self) -> HttpAnswer:
        page = Page()
        for labels, source in self._sources:
            page.add_source(source, labels)
        return HttpAnswer(200, page.text(), CONTENT_TYPE)

    async def _heartbeat(self) -> HttpAnswer:
        return HttpAnswer(200, "OK\n")

    async def _level_texts(self) -> HttpAnswer:
        return HttpAnswer(200, json.dumps(dict(self._levels.current) if self._levels is not None else {}), JSON)

    async def _change_levels(self, levels: PackageLevels, scope: Scope, receive: Receive) -> HttpAnswer:
        """To those of the body, and of those before none."""
        host = (scope.get("client") or ("",))[0]
        if not self._knows_clients and not _is_of_this_machine(host):
            return HttpAnswer(
                403, f"levels of the log are changed from this machine alone: {host or 'who asks'} is not\n"
            )
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > _BODY_BYTES_MAX or message["type"] != "http.request":
                return HttpAnswer(413, f"expected at most {_BODY_BYTES_MAX} bytes of levels\n")
            if not message.get("more_body", False):
                break
        try:
            wanted = json.loads(bytes(body))
            json.dumps(wanted, ensure_ascii=False).encode()  # JSON can write half of a character
        except (ValueError, RecursionError):
            wanted = None
        if not isinstance(wanted, dict):
            return HttpAnswer(400, 'expected levels as JSON, such as {"geminga.bookie": "debug"}; {} sets none apart\n')
        try:
            levels.follow(parse_levels(f"{name}={level}" for name, level in wanted.items()))
        except ConfigurationError as error:
            return HttpAnswer(400, f"{error}\n")
        _log.info("levels of packages are %s from now on", dict(levels.current) or "none")
        return await self._level_texts()


def _is_of_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
