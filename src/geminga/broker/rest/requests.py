"""What the handlers share: names from paths, bodies, query flags, answers, errors.

Paths are routed as they came, still percent-encoded, so that a name may hold a slash; each handler decodes its own
path elements here, as Pulsar does (a plus sign is a space). Errors go out as ``{"reason": ...}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_plus

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.context import BODY_BYTES_MAX_DEFAULT, RestContext
from geminga.model.errors import RemoteError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName, is_valid_named_entity

#: Longest name taken from a path, characters: metadata paths and file names stay within bounds.
NAME_CHARACTERS_MAX: Final = 512


class RestError(RemoteError):
    """An answer with a status of its own."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        #: HTTP status.
        self.http_status = status


def context_of(request: Request) -> RestContext:
    """The broker's side of the request."""
    found: RestContext = request.app.state.context
    return found


def json_response(value: Json | Mapping[str, Json], status: int = 200) -> Response:
    """``value`` as JSON."""
    return Response(json.dumps(value, separators=(",", ":")), status, media_type="application/json")


def no_content() -> Response:
    """204: done, or (for a GET) nothing is set."""
    return Response(status_code=204)


def error_response(status: int, reason: str) -> Response:
    """Pulsar's error body."""
    return json_response({"reason": reason}, status)


# ---- the path


def path_text(request: Request, name: str) -> str:
    """A decoded element of the path; raises 412 for one that is empty, too long, or no text."""
    try:
        text = unquote_plus(request.path_params[name], errors="strict")
    except UnicodeDecodeError as error:
        raise RestError(412, f"{name} is not percent-encoded UTF-8") from error
    if not text or len(text) > NAME_CHARACTERS_MAX:
        raise RestError(412, f"{name} has {len(text)} characters; 1 to {NAME_CHARACTERS_MAX} are allowed")
    if any(character < " " for character in text):
        raise RestError(412, f"{name} can not hold control characters")
    return text


def path_int(request: Request, name: str) -> int:
    """A whole number in the path; 404 otherwise, as for a path that does not exist."""
    text = request.path_params[name]
    try:
        return int(text)
    except ValueError as error:
        raise RestError(404, f"{name} must be a whole number, not {text!r}") from error


def namespace_of(request: Request) -> str:
    """``tenant/namespace``; raises 412 for names that can not be."""
    tenant, name = path_text(request, "tenant"), path_text(request, "namespace")
    for part in (tenant, name):
        if not is_valid_named_entity(part):
            raise RestError(412, f"{part!r} is no name of a tenant or namespace: use letters, digits and -=:._")
    return f"{tenant}/{name}"


def domain_of(request: Request) -> str:
    """``persistent`` or ``non-persistent``: no route takes anything else."""
    domain: str = request.path_params["domain"]
    return domain


def topic_of(request: Request) -> TopicName:
    """The topic of the path; raises 412 for an invalid name."""
    domain, namespace, local = domain_of(request), namespace_of(request), path_text(request, "topic")
    return TopicName.parse(f"{domain}://{namespace}/{local}")


# ---- query and body


def flag(request: Request, name: str, default: bool = False) -> bool:
    """A boolean of the query."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


async def body_bytes(request: Request) -> bytes:
    """The body; raises 413 beyond the bound."""
    limit = context_of(request).body_bytes_max
    limit = limit if limit >= 0 else BODY_BYTES_MAX_DEFAULT
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RestError(413, f"the body is larger than {limit} bytes")
    return bytes(body)


async def json_body(request: Request) -> Json:
    """The body as JSON, None if it is empty; raises 400."""
    body = await body_bytes(request)
    if not body.strip():
        return None
    try:
        value: Json = json.loads(body)
        # Half a surrogate pair, NaN and numbers beyond a double can be read, but neither kept nor sent on as JSON.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RestError(400, f"the body is not JSON: {error}") from error
    return value


async def object_body(request: Request) -> Document:
    """The body as a JSON object, empty if there is none; raises 400."""
    value = await json_body(request)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RestError(400, "the body must be a JSON object")
    return value


async def text_map_body(request: Request) -> dict[str, str]:
    """The body as a JSON object of texts, such as properties; raises 400."""
    document = await object_body(request)
    if not all(isinstance(value, str) for value in document.values()):
        raise RestError(400, "the body must be a JSON object whose values are texts")
    return {key: str(value) for key, value in document.items()}


async def whole_number_body(request: Request) -> int:
    """The body as a whole number; raises 400."""
    value = await json_body(request)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RestError(400, "the body must be a whole number")
    return value


# ---- positions

#: What Java's ``Long.MAX_VALUE`` stands for in message ids: "latest".
LONG_MAX: Final = (1 << 63) - 1


def position_of(value: Json) -> Position:
    """A message id in JSON (``ledgerId``, ``entryId``) or one of "latest" and "earliest"; raises 400."""
    if value == "latest":
        return Position(LONG_MAX, LONG_MAX)
    if value == "earliest":
        return Position(-1, -1)
    if not isinstance(value, dict):
        raise RestError(400, 'expected a message id such as {"ledgerId":1,"entryId":0}')
    ledger_id, entry_id = value.get("ledgerId"), value.get("entryId")
    if not _is_long(ledger_id) or not _is_long(entry_id):
        raise RestError(400, "ledgerId and entryId of a message id must be whole numbers of 64 bits")
    assert isinstance(ledger_id, int)
    assert isinstance(entry_id, int)
    return Position(ledger_id, entry_id)


def message_id_json(position: Position, partition: int = -1) -> Document:
    """A message id as Pulsar's JSON."""
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": partition}


def _is_long(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value <= LONG_MAX
