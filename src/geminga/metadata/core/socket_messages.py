"""What is said over a metadata socket: the messages of ``docs/formats/metadata-socket.md`` as values. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from geminga.metadata.ports import Node, Notification, PutResult
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    DiskFullError,
    GemingaError,
    MetadataError,
    MetadataUnavailableError,
    NodeNotEmptyError,
    NoSuchNodeError,
    SessionExpiredError,
    UnknownOutcomeError,
)

#: Of the protocol.
VERSION: Final = 2
#: Bytes of a session's secret.
SECRET_BYTES: Final = 16
#: ``SessionHello.session`` that asks for a new one.
NEW_SESSION: Final = 0


class BrokenMessageError(MetadataError):
    """What came is no message of the protocol, or what should be said fits into none."""


class SessionHello(NamedTuple):
    """The client's first: who it is, and the session that it wants."""

    version: int
    session: int
    secret: bytes
    timeout_ms: int
    #: Of the server's life.
    token: str
    #: For the log, and for :meth:`MetadataServer.end_sessions_of`.
    name: str


class Ping(NamedTuple):
    """The client is there."""


class StoreOperation(IntEnum):
    """What a request asks for; the number is the frame's kind."""

    GET = 16
    EXISTS = 17
    CHILDREN = 18
    NEXT_SEQUENCE = 19
    SYNC = 20
    CLOSE = 21
    PUT = 24
    DELETE = 25
    TAKE_SEQUENCES = 26


class StoreRequest(NamedTuple):
    """A call of the port."""

    request_id: int
    operation: StoreOperation
    path: str = ""
    value: bytes = b""
    expected_version: int | None = None
    ephemeral: bool = False
    sequential: bool = False
    #: Of counters to take.
    how_many: int = 0


class Numbers(NamedTuple):
    """Counters that were taken."""

    taken: tuple[int, ...]


class Watch(NamedTuple):
    """Begin or end a watch; has no answer."""

    path: str
    of_children: bool
    is_end: bool = False
    #: Tell at once what is there.
    is_told: bool = False


class Welcome(NamedTuple):
    """The session is open."""

    session: int
    secret: bytes
    timeout_ms: int


class Reason(IntEnum):
    """Why a client is refused."""

    VERSION = 1
    TOKEN = 2
    SESSION_OVER = 3
    TOO_MANY = 4
    NOT_NOW = 5


class Refused(NamedTuple):
    """There is no session to be had; the connection ends."""

    reason: Reason
    version: int
    why: str


class Pong(NamedTuple):
    """The server is there."""


class Expired(NamedTuple):
    """The session is over; the connection ends."""


class CallFailure(NamedTuple):
    """A call went wrong."""

    code: int
    sentence: str


#: What a call gave: nothing (or no such node), a node, a number (or yes or no), numbers, names, what was written, a
#: failure.
Result: TypeAlias = Node | int | Numbers | tuple[str, ...] | PutResult | CallFailure | None


class StoreResponse(NamedTuple):
    """What became of a request."""

    request_id: int
    result: Result


FromClient: TypeAlias = SessionHello | Ping | StoreRequest | Watch
FromServer: TypeAlias = Welcome | Refused | Pong | Expired | StoreResponse | Notification

_OTHER: Final = 9
_ERRORS: Final[dict[int, type[GemingaError]]] = {
    1: BadVersionError,
    2: NoSuchNodeError,
    3: NodeNotEmptyError,
    4: UnknownOutcomeError,
    5: SessionExpiredError,
    6: MetadataUnavailableError,
    7: CorruptionError,
    8: DiskFullError,
    _OTHER: MetadataError,
}


def failure_of(error: GemingaError) -> CallFailure:
    """The nearest that the protocol has; any other error of the store is told by its sentence."""
    for code, kind in _ERRORS.items():
        if type(error) is kind:
            return CallFailure(code, str(error))
    return CallFailure(_OTHER, str(error))


def error_of(failure: CallFailure) -> GemingaError:
    """What the caller gets to see."""
    return _ERRORS.get(failure.code, MetadataError)(failure.sentence)
