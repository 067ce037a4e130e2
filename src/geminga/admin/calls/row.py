"""How a call of the admin REST is described: one row for each, from which the clients and the commands are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class WireType(Enum):
    """What a value is, in Python and on the wire."""

    TEXT = auto()
    INT = auto()
    FLOAT = auto()
    BOOL = auto()
    TEXTS = auto()
    #: Texts by text.
    TEXT_MAP = auto()
    #: A JSON object.
    DOCUMENT = auto()
    #: Several.
    DOCUMENTS = auto()
    #: A message's place: ``latest``, ``earliest``, or an object with ``ledgerId`` and ``entryId``.
    POSITION = auto()
    #: An entry's payload, and what is said of it in headers.
    MESSAGE = auto()


@dataclass(frozen=True, slots=True)
class Argument:
    """One that a caller may leave out, or names."""

    name: str
    kind: WireType
    #: The parameter of the query, or the member of the body.
    key: str
    text: str
    #: None: it is left out of the request unless given.
    default: str | int | bool | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """A value that is the whole body."""

    name: str
    kind: WireType
    text: str
    #: The text itself, not a JSON string.
    is_plain: bool = False
    #: Nothing is sent unless it is given.
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    ``path`` is below ``/admin/v2/`` unless it begins with a slash. Its names in braces are the first arguments, in
    their order: ``{topic}`` is a topic with its domain, ``{place}`` one without, ``{namespace}`` is
    ``tenant/namespace``, ``{subscription}`` one below a topic, anything else a text.
    """

    verb: str
    method: str
    path: str
    text: str
    answer: WireType | None = None
    query: tuple[Argument, ...] = ()
    #: Members of an object that is the body.
    members: tuple[Argument, ...] = ()
    body: Body | None = None
    #: What is lost by it can not be brought back.
    destroys: bool = False
    #: Of a call that may be answered by nothing: what is not set.
    may_be_none: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """A value of a namespace or a topic that is got, set and removed at one path below it."""

    name: str
    path: str
    text: str
    kind: WireType
    #: Of an object, by name of its type.
    type: str = ""
    set_by: str = "POST"
    #: A text comes and goes without quotes.
    is_plain: bool = False
    #: False: there is no request for that.
    is_removable: bool = True
    #: The parameter of the query that has the value instead of a body.
    in_query: str = ""


@dataclass(frozen=True, slots=True)
class Noun:
    """The calls about one kind of thing."""

    name: str
    text: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policies of namespaces, or of topics."""

    name: str
    text: str
    #: Of what they are: ``topic`` or ``namespace``.
    owner: str
    policies: tuple[Policy, ...]


FORCE: Final = Argument("force", WireType.BOOL, "force", "also while it is in use", default=False)
APPLIED: Final = Argument(
    "applied",
    WireType.BOOL,
    "applied",
    "what holds where this level sets nothing",
    default=False,
)

QUOTA_KIND: Final = Argument(
    "kind", WireType.TEXT, "backlogQuotaType", "destination_storage or message_age", default="destination_storage"
)


def get(verb: str, path: str, text: str, answer: WireType, *query: Argument, may_be_none: bool = False) -> Call:
    """A look that changes nothing."""
    return Call(verb, "GET", path, text, answer, query=query, may_be_none=may_be_none)


def do(method: str, verb: str, path: str, text: str, *query: Argument, destroys: bool = False) -> Call:
    """A change without a body."""
    return Call(verb, method, path, text, query=query, destroys=destroys)
