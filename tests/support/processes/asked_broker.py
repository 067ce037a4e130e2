"""A broker's REST API as the administration sees it, without HTTP: it notes requests, and answers as it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from geminga.admin._http import JSON, Query

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Asked(NamedTuple):
    """One request, as it came."""

    method: str
    path: str
    query: Mapping[str, Any]
    body: bytes | None
    content_type: str

    @property
    def change(self) -> str:
        """Method and path; nothing for a question."""
        return "" if self.method == "GET" else f"{self.method} {self.path}"

    @property
    def document(self) -> Any:
        """The body, which is JSON; None: there is none."""
        return json.loads(self.body) if self.body else None


class AskedBroker:
    """A :class:`geminga.admin._request.Caller`.

    ``answers`` gives the body of each answer, or has what is answered to questions by their path, which is written as
    JSON: nothing for other paths, and to changes. An exception among them is raised, for questions and changes.
    """

    def __init__(
        self, answers: Mapping[str, Any] | Callable[[Asked], bytes] = _NOTHING, headers: Mapping[str, str] = _NOTHING
    ) -> None:
        self._answers = answers
        self._headers = headers
        #: Refused ones too.
        self.asked: list[Asked] = []

    @property
    def changes(self) -> list[str]:
        """Method and path of all requests that change something, refused ones too."""
        return [one.change for one in self.asked if one.change]

    def request(
        self, method: str, path: str, query: Query = None, body: bytes | None = None, content_type: str = JSON
    ) -> tuple[bytes, Mapping[str, str]]:
        asked = Asked(method, path, query or {}, body, content_type)
        self.asked.append(asked)
        return self._answer_to(asked), self._headers

    def _answer_to(self, asked: Asked) -> bytes:
        if callable(self._answers):
            return self._answers(asked)
        answer = self._answers.get(asked.path)
        if isinstance(answer, BaseException):
            raise answer
        return b"" if answer is None or asked.change else json.dumps(answer).encode()
