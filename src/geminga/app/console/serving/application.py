"""The console as an ASGI application, below ``/console``: finds the page or act, has it made, and answers in any case
with a page: what goes wrong is one sentence and what to do next.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from geminga.admin import AdminError, UnauthorizedError
from geminga.app.console.acts import all_acts
from geminga.app.console.core.addresses import (
    FORM_BYTES_MAX,
    ROOT,
    TooMuchError,
    address,
    fields_of,
    is_inside,
    matched,
    with_fields,
)
from geminga.app.console.core.history import SeenLately
from geminga.app.console.core.refusals import explained
from geminga.app.console.core.sessions import CREDENTIALS_BYTES_MAX, Visitor
from geminga.app.console.pages import all_pages
from geminga.app.console.serving.inner_admin import Changes, InnerRequests, visitors_admin
from geminga.app.console.serving.logging_in import authorization_of
from geminga.app.console.serving.rendering import environment, rendered
from geminga.app.console.serving.static_files import static_files
from geminga.app.console.serving.visitors import Visitors, remember
from geminga.app.console.tables import Act, Attached, Field, Question, Refusal, Rendered, View
from geminga.client import Client, PulsarException
from geminga.model.errors import GemingaError
from geminga.runtime import Raised, SparseWarnings, attempt_await, get_logger

if TYPE_CHECKING:
    import ssl

    from starlette.types import ASGIApp, Receive, Scope, Send

_log = get_logger(__name__)

#: Pages that are being made at a time, over all visitors; further ones are told to come back.
PAGES_MAX: Final = 32
#: Of them for the same credentials or certificate: who may see little does not keep all others out.
PAGES_OF_ONE_MAX: Final = 16
#: Seconds that a page has to be made.
PAGE_S_MAX: Final = 30.0
#: Seconds after which one may come back.
RETRY_AFTER_S: Final = 2
#: Characters of a sentence that goes along with an address.
NOTICE_LENGTH_MAX: Final = 1000
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would call themselves "null" in Origin when they send a form.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOGIN: Final = "/login"
_LOGOUT: Final = "/logout"

#: What makes a visitor who was told of fewer agree to more.
_GROWING: Final = Field(
    "growing",
    "And whatever comes until then",
    kind="checkbox",
    hint="Without it more is asked about again.",
    is_required=False,
)

Clients = Callable[[str, bytes | None, bool], AbstractAsyncContextManager[Client]]


class Mounted(NamedTuple):
    """What the console is given."""

    #: The administration.
    administration: ASGIApp
    #: ``draw(size_bytes)``: hexadecimal digits by chance.
    draw: Callable[[int], str]
    monotonic: Callable[[], float]
    #: Milliseconds since the epoch.
    wall_ms: Callable[[], int]
    #: False: acts are refused.
    can_act: bool
    #: Whether brokers ask who somebody is.
    asks_who: bool
    #: A client by the header Authorization, the certificate that was shown, and whether a proxy asks.
    clients: Clients
    #: How other brokers are verified; None: by the system's authorities.
    context: Callable[[], ssl.SSLContext | None]
    #: Shown on every page.
    cluster: str
    version: str
    #: What a login takes.
    takes_tokens: bool = True
    takes_passwords: bool = True


class Console:
    """See the module."""

    def __init__(self, mounted: Mounted) -> None:
        """Raises OSError for templates and files that can not be read."""
        self._mounted = mounted
        self._pages = all_pages()
        self._acts = all_acts()
        self._sections = [(page.section, page.path) for page in self._pages if page.section]
        self._templates = environment()
        self._static = static_files()
        self._visitors = Visitors(mounted.draw, mounted.monotonic)
        #: For plots, over all visitors.
        self._seen = SeenLately()
        #: What a broken page says is worth a line, and not one for each visitor.
        self._warnings = SparseWarnings(_log, mounted.monotonic)
        #: Pages that are being made, and how many of them for whom.
        self._running = 0
        self._running_of = Counter[str | bytes]()
        self._changes = Changes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        request = Request(scope, receive)
        outcome = await attempt_await(self._answer(request))
        response = outcome if not isinstance(outcome, Raised) else self._unexpected(request, outcome.error)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = _path_of(request)
        if request.method not in ("GET", "HEAD", "POST"):
            return self._plain(405, f"The console knows GET and POST, not {request.method}.", {"Allow": "GET, POST"})
        if path.startswith("/static/"):
            return self._static_file(request, path.removeprefix("/static/"))
        if path == "":
            return RedirectResponse(f"{ROOT}/", 307)
        visitor = self._visitors.visitor_of(request, by_itself="part" in _shown_query(request))
        try:
            return await self._served(request, path, visitor)
        except Refusal as refusal:
            return self._error(request, visitor, refusal.status, refusal.sentence, path)
        except TooMuchError as error:
            return self._error(request, visitor, 413, f"{error}.", path)
        except (AdminError, PulsarException, GemingaError, ValueError) as error:
            status, sentence = explained(error)
            return self._error(request, visitor, status, sentence, path)

    async def _served(self, request: Request, path: str, visitor: Visitor) -> Response:
        # Before it takes a place: a form that comes slowly holds nobody else back.
        form = await self._form(request, visitor) if request.method == "POST" else {}
        whose = visitor.authorization or _certificate(request) or ""
        if self._running >= PAGES_MAX or (whose and self._running_of[whose] >= PAGES_OF_ONE_MAX):
            sentence = f"{self._running} pages are being made already; try again in a moment."
            return self._plain(503, sentence, {"Retry-After": str(RETRY_AFTER_S)})
        self._running += 1
        self._running_of[whose] += 1
        try:
            async with asyncio.timeout(PAGE_S_MAX):
                return await self._made(request, path, visitor, form)
        except TimeoutError:
            raise Refusal(f"This page was not made within {PAGE_S_MAX:.0f} seconds.", 504) from None
        finally:
            self._running -= 1
            self._running_of[whose] -= 1
            if not self._running_of[whose]:
                del self._running_of[whose]

    async def _made(self, request: Request, path: str, visitor: Visitor, form: Mapping[str, str]) -> Response:
        if path == _LOGIN:
            return await self._log_in(request, visitor, form)
        if path == _LOGOUT:
            return self._log_out(request, visitor, is_post=request.method == "POST")
        requests = self._inner(request, visitor.authorization)
        try:
            if self._mounted.asks_who and not await self._is_known(requests):
                return self._to_login(request, visitor)
            return await self._found(request, path, visitor, form, requests)
        finally:
            await requests.close()

    async def _is_known(self, requests: InnerRequests) -> bool:
        """Whether the brokers take these credentials still. Asked before each page: 401 is their answer to who has no
        right, too, as with Pulsar. Raises AdminError."""
        try:
            # Whoever is known may ask this, by a certificate or as ``anonymousUserRole`` too.
            await visitors_admin(requests).clusters.list()
        except UnauthorizedError:
            return False
        return True

    async def _found(
        self, request: Request, path: str, visitor: Visitor, form: Mapping[str, str], requests: InnerRequests
    ) -> Response:
        if path.startswith("/acts/"):
            act = self._acts.get(path.removeprefix("/acts/"))
            if act is not None:
                view = self._view(request, visitor, {}, form, requests)
                return await self._act(request, visitor, act, view)
        for page in self._pages:
            parameters = matched(page.path, path)
            if parameters is None:
                continue
            if request.method == "POST":
                raise Refusal("This page is looked at; what changes something is an act.", 405)
            view = self._view(request, visitor, parameters, form, requests)
            found = await page.handler(view)
            if isinstance(found, Attached):
                return _attachment(found)
            return self._page(request, visitor, found, view.part)
        raise Refusal("There is no such page.", 404)

    def _view(
        self,
        request: Request,
        visitor: Visitor,
        path: Mapping[str, str],
        form: Mapping[str, str],
        requests: InnerRequests,
    ) -> View:
        query = fields_of(request.scope["query_string"])
        is_through_proxy = "x-original-principal" in request.headers
        return View(
            visitors_admin(requests),
            path,
            query,
            form=form,
            can_act=self._mounted.can_act,
            part=query.get("part", ""),
            now_ms=self._mounted.wall_ms(),
            seen=self._seen,
            clients=lambda: self._mounted.clients(visitor.authorization, _certificate(request), is_through_proxy),
        )

    def _inner(self, request: Request, authorization: str) -> InnerRequests:
        mounted = self._mounted
        return InnerRequests(mounted.administration, request.scope, authorization, mounted.context, self._changes)

    # ---- acts

    async def _act(self, request: Request, visitor: Visitor, act: Act, view: View) -> Response:
        if not self._mounted.can_act:
            raise Refusal("This console is read-only (gemingaConsole=read-only): nothing can be changed here.", 403)
        question = await act.question(view)
        if request.method != "POST" or question.obstacle:
            return self._asked(request, visitor, act, question, 409 if question.obstacle else 200)
        if question.is_unfinished:
            return self._asked(request, visitor, act, question, 409)
        if _told(view.form) < (question.hits or 0) and view.form.get(_GROWING.name) != "yes":
            # Asked again and again, nothing would ever be done where much is published: it may be agreed to.
            question = question._replace(fields=(*question.fields, _GROWING))
            note = "More would be hit now than when you were asked. Look again:"
            return self._asked(request, visitor, act, question, 409, note)
        done = await act.carry_out(view)
        sentence = done.sentence[:NOTICE_LENGTH_MAX]
        seal = self._visitors.notice_seal(visitor, sentence)
        return RedirectResponse(with_fields(done.target, {"done": sentence, "seal": seal}), 303)

    def _asked(
        self, request: Request, visitor: Visitor, act: Act, question: Question, status: int, note: str = ""
    ) -> Response:
        chosen = {**question.chosen}
        if not question.is_unfinished:
            chosen["token"] = self._visitors.form_token(visitor)
            chosen["hits"] = str(question.hits or 0)
        values = {"act": act, "question": question, "chosen": chosen, "note": note}
        return self._page(request, visitor, Rendered("act.html", values, status), "")

    async def _form(self, request: Request, visitor: Visitor) -> dict[str, str]:
        """What was posted; raises Refusal for a form that the console did not make for this visitor."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Refusal("A form is sent as application/x-www-form-urlencoded.", 415)
        parts, room = [], FORM_BYTES_MAX
        async for part in request.stream():
            room -= len(part)
            if room < 0:
                raise Refusal(f"A form has at most {FORM_BYTES_MAX:,} bytes.", 413)
            parts.append(part)
        form = fields_of(b"".join(parts))
        if not self._visitors.is_own_form(visitor, form.pop("token", "")):
            raise Refusal(
                "This form is too old, or not of this console. Go back, load the page again, and repeat.", 403
            )
        return form

    # ---- who it is

    async def _log_in(self, request: Request, visitor: Visitor, form: Mapping[str, str]) -> Response:
        query = fields_of(request.scope["query_string"])
        target = form.get("next", query.get("next", ""))
        target = target if is_inside(target) else f"{ROOT}/"
        if not form:
            takes = {"takes_tokens": self._mounted.takes_tokens, "takes_passwords": self._mounted.takes_passwords}
            return self._page(request, visitor, Rendered("login.html", {"next": target, **takes}), "")
        authorization = authorization_of(form)
        if len(authorization) > CREDENTIALS_BYTES_MAX:
            raise Refusal(f"Credentials have at most {CREDENTIALS_BYTES_MAX:,} bytes.", 413)
        requests = self._inner(request, authorization)
        try:
            await visitors_admin(requests).clusters.list()
        except UnauthorizedError as error:
            raise Refusal(f"This does not prove who you are: {error.reason.rstrip('.')}.", 401) from error
        self._visitors.log_out(visitor)
        response = RedirectResponse(target, 303)
        remember(response, request, self._visitors.log_in(authorization))
        return response

    def _log_out(self, request: Request, visitor: Visitor, *, is_post: bool) -> Response:
        if not is_post:
            raise Refusal("Logging out is a button at the top of each page.", 405)
        response = RedirectResponse(address(_LOGIN), 303)
        remember(response, request, self._visitors.log_out(visitor))
        return response

    def _to_login(self, request: Request, visitor: Visitor) -> Response:
        self._visitors.log_out(visitor)
        if "part" in _shown_query(request):
            return self._plain(401, "Log in again.")
        wanted = request.scope["path"] + (
            f"?{query.decode('latin-1')}" if (query := request.scope["query_string"]) else ""
        )
        if request.method == "POST":
            wanted = f"{ROOT}/"
        return RedirectResponse(address(_LOGIN, next=wanted), 303)

    # ---- answers

    def _page(self, request: Request, visitor: Visitor, page: Rendered, part: str) -> Response:
        shared = {
            "cluster": self._mounted.cluster,
            "version": self._mounted.version,
            "sections": self._sections,
            "here": _path_of(request),
            "this_page": _this_page(request),
            "can_act": self._mounted.can_act,
            "is_logged_in": bool(visitor.authorization),
            "may_log_in": self._mounted.asks_who and not visitor.authorization,
            "token": self._visitors.form_token(visitor),
            "notice": self._notice(request, visitor),
            "files": {name: file.etag.strip('"') for name, file in self._static.items()},
        }
        text = rendered(self._templates, page, shared, part)
        response = Response(text, page.status, media_type="text/html; charset=utf-8")
        remember(response, request, visitor)
        return response

    def _notice(self, request: Request, visitor: Visitor) -> str:
        query = _shown_query(request)
        sentence = query.get("done", "")
        return sentence if self._visitors.is_own_notice(visitor, sentence, query.get("seal", "")) else ""

    def _error(self, request: Request, visitor: Visitor, status: int, sentence: str, path: str) -> Response:
        if status == 504 and request.method == "POST":
            sentence += " Whether it was done is not known: look before it is repeated."
        if status >= 500:
            self._warnings.warn(f"console: {request.method} {path[:200]}: {sentence}")
        values = {"status": status, "sentence": sentence}
        return self._page(request, visitor, Rendered("error.html", values, status), "")

    def _unexpected(self, request: Request, error: BaseException) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=400)
        _log.error("console: %s %s failed", request.method, request.scope["path"], exc_info=error)
        return self._plain(503, "The console could not make this page; the broker's log says why. Try another page.")

    @staticmethod
    def _plain(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response(f"{sentence}\n", status, headers, media_type="text/plain; charset=utf-8")

    def _static_file(self, request: Request, name: str) -> Response:
        file = self._static.get(name)
        if file is None:
            return self._plain(404, "There is no such file.")
        is_current = _shown_query(request).get("v") == file.etag.strip('"')
        kept = "private, max-age=31536000, immutable" if is_current else "no-cache"
        headers = {"ETag": file.etag, "Cache-Control": kept}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.data, headers=headers, media_type=file.content_type)


def _path_of(request: Request) -> str:
    """Below :data:`ROOT`, percent-encoded."""
    raw = request.scope.get("raw_path")
    path: str = raw.decode("latin-1") if raw else quote(request.scope["path"])
    return path.removeprefix(ROOT)


def _this_page(request: Request) -> str:
    """The address without what belongs to one look alone."""
    fields = _shown_query(request)
    return address(_path_of(request), **{name: fields[name] for name in fields if name not in ("part", "done", "seal")})


def _attachment(found: Attached) -> Response:
    disposition = f"attachment; filename*=UTF-8''{quote(found.file_name, safe='')}"
    return Response(found.data, media_type="application/octet-stream", headers={"Content-Disposition": disposition})


def _shown_query(request: Request) -> dict[str, str]:
    """For a page that is shown in any case: nothing of a query that is too large."""
    try:
        return fields_of(request.scope["query_string"])
    except TooMuchError:
        return {}


def _certificate(request: Request) -> bytes | None:
    from geminga.broker.rest.http.http_connection import CERTIFICATE_IN_STATE

    found: bytes | None = request.scope.get("state", {}).get(CERTIFICATE_IN_STATE)
    return found


def _told(form: Mapping[str, str]) -> int:
    """How much the visitor was told would be hit."""
    text = form.get("hits", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else -1
