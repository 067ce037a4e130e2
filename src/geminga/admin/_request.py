"""One request, and how it is carried out: what calls and commands have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from geminga.admin._http import JSON, Query
from geminga.admin.errors import AdminError
from geminga.admin.values import StoredMessage

#: Of an answer that is none.
_SHOWN_BYTES: Final = 200
#: What a request is answered with.
Answer = TypeVar("Answer")


class Caller(Protocol):
    """Who sends it: :class:`geminga.admin._http.HttpCaller`."""

    def request(
        self, method: str, path: str, query: Query = None, body: bytes | None = None, content_type: str = JSON
    ) -> tuple[bytes, Mapping[str, str]]:
        """Body and headers of the answer. Raises AdminError."""


class Request(NamedTuple, Generic[Answer]):
    """One call with its arguments; its type says what it is answered with."""

    method: str
    path: str
    query: Query = None
    #: Written as JSON; None: there is none.
    body: object = None
    #: In place of ``body``, as it is.
    text: str | None = None
    #: The answer is a text, with or without quotes.
    is_text: bool = False
    #: The answer is an entry.
    is_message: bool = False
    #: The answer is JSON, or else a text: who asks does not know.
    is_any: bool = False
    #: Of the body.
    content_type: str = JSON


def answer_to(caller: Caller, request: Request[Answer]) -> Answer:
    """The answer; None for nothing, and for null. Raises AdminError."""
    found, headers = caller.request(request.method, request.path, request.query, body_of(request), request.content_type)
    answer: Answer = answer_of(request, found, headers)
    return answer


def body_of(request: Request[Any]) -> bytes | None:
    """What is sent; None: there is no body. Raises ValueError for what JSON has no words for."""
    if request.text is not None:
        return request.text.encode()
    return None if request.body is None else json.dumps(request.body, allow_nan=False).encode()


def answer_of(request: Request[Any], found: bytes, headers: Mapping[str, str]) -> Any:  # noqa: ANN401
    """What was answered, given body and headers (small letters); None for nothing, and for null. Raises AdminError."""
    if request.is_message:
        return StoredMessage(found, headers)
    if not found:
        return None
    try:
        if request.is_any:
            return _anything(found)
        return found.decode() if request.is_text and found[:1] != b'"' else json.loads(found)
    except (ValueError, RecursionError):
        # Something between here and the broker may answer in its place.
        story = f"an answer that is not what was asked for: {found[:_SHOWN_BYTES]!r}"
        raise AdminError(f"{request.method} {request.path}", 0, story) from None


def _anything(found: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(found)
    except ValueError:
        return found.decode()
