"""Who a request is from: its cookie, its session, and what proves that a form is the console's own."""

from __future__ import annotations

from collections.abc import Callable
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Final

from geminga.app.console.core.addresses import ROOT
from geminga.app.console.core.sessions import NAME_BYTES, Sessions, Visitor, is_sealed, name_of, sealed

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

#: What a seal is for.
_FORM: Final = "form"
_NOTICE: Final = "notice"


class Visitors:
    """Of one process: after a restart all are strangers again."""

    def __init__(self, draw: Callable[[int], str], monotonic: Callable[[], float]) -> None:
        """``draw``: so many bytes by chance, in hexadecimal digits."""
        self._draw = draw
        self._monotonic = monotonic
        self._key = bytes.fromhex(draw(32))
        self._sessions = Sessions()

    def visitor_of(self, request: Request, *, by_itself: bool = False) -> Visitor:
        """By the cookie; a new name for who brings none. ``by_itself``: for a live part of a page that is open."""
        name = name_of(request.headers.get("cookie", ""), _cookie(request))
        if not name:
            return Visitor(self._draw(NAME_BYTES))
        return Visitor(name, self._sessions.used(name, now_s=self._monotonic(), by_itself=by_itself))

    def log_in(self, authorization: str) -> Visitor:
        """A session of a new name: one that somebody else may know is not taken over."""
        visitor = Visitor(self._draw(NAME_BYTES), authorization)
        self._sessions.begin(visitor.name, authorization, now_s=self._monotonic())
        return visitor

    def log_out(self, visitor: Visitor) -> Visitor:
        """A stranger again."""
        self._sessions.end(visitor.name)
        return Visitor(self._draw(NAME_BYTES))

    def form_token(self, visitor: Visitor) -> str:
        """What forms of this visitor bring back."""
        return sealed(self._key, _FORM, visitor.name)

    def is_own_form(self, visitor: Visitor, token: str) -> bool:
        """Whether a form was made for this visitor."""
        return is_sealed(self._key, token, _FORM, visitor.name)

    def notice_seal(self, visitor: Visitor, sentence: str) -> str:
        """Goes along with a sentence that a page is to show, so that nobody's link puts words on it."""
        return sealed(self._key, _NOTICE, visitor.name, sentence)

    def is_own_notice(self, visitor: Visitor, sentence: str, seal: str) -> bool:
        """Whether this process said so to this visitor."""
        return is_sealed(self._key, seal, _NOTICE, visitor.name, sentence)


def remember(response: Response, request: Request, visitor: Visitor) -> None:
    """Have the browser bring the name along, for as long as it runs.

    One that it brought is not said again: an answer that is late would take back the name of a login meanwhile.
    """
    name = _cookie(request)
    if name_of(request.headers.get("cookie", ""), name) == visitor.name:
        return
    cookie = SimpleCookie()
    cookie[name] = visitor.name
    cookie[name]["path"] = ROOT
    cookie[name]["httponly"] = True
    cookie[name]["samesite"] = "Strict"
    if request.scope["scheme"] == "https":
        cookie[name]["secure"] = True
    response.headers.append("set-cookie", cookie.output(header="").strip())


def _cookie(request: Request) -> str:
    """Browsers know no ports: brokers of one machine have a cookie each."""
    server = request.scope.get("server")
    return f"geminga_console_{server[1] if server is not None else 0}"
