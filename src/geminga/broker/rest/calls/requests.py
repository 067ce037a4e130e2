"""What the handlers share: names from paths, bodies, query flags, answers, errors.

Paths are routed as they came, still percent-encoded, so that a name may hold a slash; each handler decodes its own
path elements here. How depends on the route, as in Pulsar, whose own tools encode for it: :func:`path_text`,
:func:`form_text` (topics), :func:`subscription_name`. Errors go out as ``{"reason": ...}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import unquote, unquote_plus

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.core.coercion import (
    INT_MAX,
    LONG_MAX,
    VALUES_MAX,
    has_too_many_values,
    number_of,
    object_of,
    text_of,
)
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.core.timeouts import BODY_BYTES_MAX_DEFAULT, RETRY_AFTER_S
from geminga.model.errors import PreconditionFailedError, RemoteError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName, is_valid_named_entity

#: Of a body that is a setting, whose parts all take time and memory; metadata take no more either. What is stored
#: elsewhere (messages, schemas) has the bound that is configured.
SETTING_BYTES_MAX: Final = 1 << 20
#: Longest name taken from a path, characters: metadata paths and file names stay within bounds.
NAME_CHARACTERS_MAX: Final = 512
#: Of an error: many repeat a part of the request.
REASON_CHARACTERS_MAX: Final = 4096
#: A percent sign that encodes nothing.
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
#: As in a path; no number of 64 bits has more digits.
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
#: Types of a body that is read as JSON.
_JSON_TYPES: Final = ("application/json", "application/*", "*/*")
#: Where WebSockets are, and the parameter that brings their credentials.
SOCKETS_PATH: Final = "/ws/"
TOKEN_PARAMETER: Final = "token"
#: What is said where a body is missing that has to be there.
NO_BODY: Final = "The request entity cannot be empty."
#: What is said of numbers that no double holds, and how ``json.dumps`` begins to say it.
NOT_FINITE: Final = "a number in the body is too large, or none: expected at most 1.8e308, and no NaN or Infinity"
_OUT_OF_RANGE: Final = "Out of range float values"


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


def plain_text(text: str) -> Response:
    """A text as it is, which is no JSON: Pulsar's tools read it so where Pulsar's broker calls it JSON."""
    return Response(text, media_type="text/plain")


def no_content() -> Response:
    """204: done."""
    return Response(status_code=204)


def nothing_set(status: int = 200) -> Response:
    """No body: what was asked for is there, and nothing is set. Some of Pulsar's paths say so with 204."""
    return Response(status_code=status)


def error_response(status: int, reason: str) -> Response:
    """Pulsar's error body; who is not served now is told when to come again."""
    if len(reason) > REASON_CHARACTERS_MAX:
        # What is wrong is in front; the rest is what was sent.
        reason = f"{reason[:REASON_CHARACTERS_MAX]}..."
    response = json_response({"reason": reason}, status)
    if status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


# ---- who asks


def authorization_of(request: Request) -> str:
    """The header Authorization; for a WebSocket the query's token, too: a page of a browser can set no headers."""
    found: str = request.headers.get("Authorization", "")
    if not found and request.scope.get("path", "").startswith(SOCKETS_PATH):
        token = request.query_params.get(TOKEN_PARAMETER, "")
        return f"Bearer {token}" if token else ""
    return found


# ---- the path


def path_text(request: Request, name: str) -> str:
    """A decoded element of the path; raises 400 or 412 for one that is empty, too long, or no text."""
    return _checked_text(decoded_text(request, name), name)


def decoded_text(request: Request, name: str) -> str:
    """A decoded element of the path that is no name; raises 400 or 412 for one that is no text."""
    return _decoded(request.path_params[name], name, unquote)


def form_text(request: Request, name: str) -> str:
    """An element of the path that is encoded as a form's text, in which a plus sign is a space; raises 400 or 412."""
    return _decoded(request.path_params[name], name, unquote_plus)


def subscription_name(request: Request) -> str:
    """The subscription that the path names, decoded as its parameter says: :data:`SUBSCRIPTIONS`. Raises 400 or 412."""
    name = next(name for name in SUBSCRIPTIONS if name in request.path_params)
    return SUBSCRIPTIONS[name](request, name)


def names_subscription(request: Request) -> bool:
    """Whether the path names one."""
    return any(name in request.path_params for name in SUBSCRIPTIONS)


def _twice_decoded(request: Request, name: str) -> str:
    """So ``my%2Bsub``, ``my%20sub`` and ``my+sub`` are all "my sub", and "a+b" is ``a%252Bb``.

    What the second time decodes to no text, such as ``100%25`` of a tool that encodes once, is what it was.
    """
    # As the path has it none has control characters: Pulsar's tools encode twice.
    once = _uncontrolled(decoded_text(request, name), name)
    try:
        return _subscription(unquote_plus(once, errors="strict"))
    except UnicodeDecodeError:
        return _subscription(once)


def _subscription(name: str) -> str:
    """A name that clients may have made, whatever is in it: else nobody could delete it. Raises 412."""
    from geminga.wire.pulsar.texts import SUBSCRIPTION_BYTES_MAX  # with the first path that names one

    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= SUBSCRIPTION_BYTES_MAX:
        raise RestError(412, f"subscription has {size} bytes; 1 to {SUBSCRIPTION_BYTES_MAX} are allowed")
    return name


#: Parameter of a path -> how its subscription is decoded. Pulsar's tools encode by the route: below a topic's
#: ``subscription/`` as a form's text and then for the path, elsewhere as a form's text, and for transactions for the
#: path alone.
SUBSCRIPTIONS: Final[Mapping[str, Callable[[Request, str], str]]] = {
    "subscription": _twice_decoded,
    "form_subscription": lambda request, name: _uncontrolled(_subscription(form_text(request, name)), name),
    "path_subscription": lambda request, name: _uncontrolled(_subscription(decoded_text(request, name)), name),
}


def _decoded(raw: str, name: str, decode: Callable[..., str]) -> str:
    if _BROKEN_ESCAPE.search(raw):
        raise RestError(400, f"{name} has a percent sign that encodes nothing")
    try:
        return decode(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise RestError(412, f"{name} is not percent-encoded UTF-8") from error


def _checked_text(text: str, name: str) -> str:
    return _uncontrolled(_sized(text, name), name)


def _sized(text: str, name: str) -> str:
    if not text or len(text) > NAME_CHARACTERS_MAX:
        raise RestError(412, f"{name} has {len(text)} characters; 1 to {NAME_CHARACTERS_MAX} are allowed")
    return text


def _uncontrolled(text: str, name: str) -> str:
    if any(character < " " for character in text):
        raise RestError(412, f"{name} can not hold control characters")
    return text


def path_int(request: Request, name: str, most: int = INT_MAX) -> int:
    """A whole number from ``-most - 1`` to ``most`` in the path; 404 otherwise, as for a path that does not exist."""
    return _whole(unquote(request.path_params[name]), name, most)


def query_int(request: Request, name: str, most: int = INT_MAX) -> int | None:
    """As :func:`path_int`, of the query; None if nothing is said."""
    text = request.query_params.get(name)
    return _whole(text, name, most) if text else None


def _whole(text: str, name: str, most: int) -> int:
    if not _WHOLE_NUMBER.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise RestError(404, f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def namespace_of(request: Request) -> str:
    """``tenant/namespace``; raises 412 for names that can not be."""
    tenant, name = path_text(request, "tenant"), path_text(request, "namespace")
    for part in (tenant, name):
        if not is_valid_named_entity(part):
            raise RestError(412, "Namespace name is not valid")
    return f"{tenant}/{name}"


def domain_of(request: Request) -> str:
    """``persistent`` or ``non-persistent``: no route takes anything else."""
    domain: str = request.path_params["domain"]
    return domain


def topic_of(request: Request, domain: str = "") -> TopicName:
    """The topic of the path, whose domain is given where the path names none; raises 412 for an invalid name.

    It may have control characters: clients may have made such a topic, and else nobody could delete it.
    """
    domain, local = domain or domain_of(request), _sized(form_text(request, "topic"), "topic")
    tenant, namespace = path_text(request, "tenant"), path_text(request, "namespace")
    if not is_valid_named_entity(tenant) or not is_valid_named_entity(namespace) or not local.strip(" "):
        raise RestError(412, "Topic name is not valid")
    return TopicName.parse(f"{domain}://{tenant}/{namespace}/{local}")


def new_topic_of(request: Request) -> TopicName:
    """The same, of one that may be made by that: raises 412 also for control characters in its name."""
    name = topic_of(request)
    _uncontrolled(name.local_name, "topic")
    return name


def number_setting(request: Request, key: str) -> int:
    """A number of the broker's configuration, by Pulsar's key, as it is now."""
    value = context_of(request).policies.settings[key]
    return value if isinstance(value, int) else 0


# ---- query and body


def flag(request: Request, name: str, default: bool = False) -> bool:
    """A boolean of the query."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


async def body_bytes(request: Request, bytes_max: int | None = None) -> bytes:
    """The body; raises 413 beyond ``bytes_max``, or the bound that is configured for all.

    A body may take its time, so that what was asked before it is asked once more: raises AuthenticationError (401) or
    AuthorizationError (403) where who sends it may not any more.
    """
    configured = context_of(request).body_bytes_max
    limit = configured if configured >= 0 else BODY_BYTES_MAX_DEFAULT
    if bytes_max is not None:
        limit = min(limit, bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RestError(413, f"the body is larger than {limit} bytes")
    require_still: Callable[[Request], Awaitable[None]] | None = getattr(request.state, "require_still", None)
    if body and require_still is not None:
        await require_still(request)
    return bytes(body)


async def json_body(request: Request, bytes_max: int | None = SETTING_BYTES_MAX, *, is_of_broker: bool = False) -> Json:
    """The body as JSON, None if it is empty; raises 400, 413 beyond ``bytes_max`` and for more values than are read in
    one go (``is_of_broker``: those of another broker are), and 415 for a body of another type.

    The type is not only a formality: a page in a browser can post nothing of this type to a broker without asking it.
    """
    body = await body_bytes(request, bytes_max)
    if not body.strip():
        return None
    _require_json(request)
    if not is_of_broker and has_too_many_values(body):
        raise RestError(413, f"the body has more than {VALUES_MAX} JSON values")
    try:
        value: Json = json.loads(body)
        # Half a surrogate pair, NaN and numbers beyond a double can be read, but neither kept nor sent on as JSON.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        # A number beyond a double is JSON, which json.dumps' words do not tell.
        why = NOT_FINITE if f"{error}".startswith(_OUT_OF_RANGE) else f"the body is not JSON: {error}"
        raise RestError(400, why) from error
    return value


async def required_body(request: Request, bytes_max: int | None = SETTING_BYTES_MAX) -> Json:
    """As :func:`json_body`; raises 400 if there is none."""
    body = await json_body(request, bytes_max)
    if body is None:
        raise RestError(400, NO_BODY)
    return body


def refuse_other_types(request: Request) -> None:
    """Raise 415 where a body that is not looked at has another type than JSON, as in Pulsar."""
    if "content-type" in request.headers:
        _require_json(request)


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Pulsar's own clients give metadata of partitioned topics a type of their own.
    if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
        raise RestError(415, f"a body has the Content-Type application/json here, not {media_type or 'none'}")


async def object_body(request: Request, bytes_max: int | None = SETTING_BYTES_MAX) -> Document:
    """The body as a JSON object, empty if there is none; raises as :func:`json_body`."""
    value = await json_body(request, bytes_max)
    if value is None:
        return {}
    return object_of(value, "the body")


async def text_map_body(request: Request) -> dict[str, str]:
    """The body as a JSON object of texts, such as properties; raises 400."""
    document = await object_body(request)
    return {key: text_of(value, f"the value of {key!r}") for key, value in document.items()}


def check_properties_size(whose: str, properties: Mapping[str, str]) -> None:
    """Raise PreconditionFailedError (412) for more than a node of metadata has room for beside what it is for."""
    from geminga.wire.pulsar.texts import properties_refusal  # with the first that brings some

    if refusal := properties_refusal(whose, properties):
        raise PreconditionFailedError(refusal)


# ---- positions


def position_of(value: Json) -> Position:
    """A message id in JSON (``ledgerId``, ``entryId``) or one of "latest" and "earliest"; raises 400."""
    if value == "latest":
        return Position(LONG_MAX, LONG_MAX)
    if value == "earliest":
        return Position(-1, -1)
    if not isinstance(value, dict):
        raise RestError(400, 'expected a message id such as {"ledgerId":1,"entryId":0}')
    ledger_id, entry_id = (number_of(value.get(key), key, LONG_MAX) for key in ("ledgerId", "entryId"))
    return Position(ledger_id, entry_id)


def message_id_json(position: Position, partition: int = -1, *, batch_size: int = 0) -> Document:
    """A message id as Pulsar's JSON; of an entry, none of a batch's messages."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": batch_size,
    }
