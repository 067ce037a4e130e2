"""Where bookies are registered, and how their addresses are written there: BookKeeper's paths and bytes.

::

    /ledgers/INSTANCEID               the cluster's id, a UUID as text
    /ledgers/cookies/ID               the bookie's cookie (``bookie_cookie``)
    /ledgers/available/ID             ephemeral: it takes entries; value: ``BookieServiceInfoFormat``
    /ledgers/available/readonly/ID    ephemeral: it takes none now; the same value
    /geminga/bookie-marks/INSTANCE    Geminga's own: ``NUMBER ID`` (docs/formats/checkpoint.md, Mark)

docs/formats/bookie-registration.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.model.errors import CorruptionError
from geminga.wire._generated import bookkeeper_metadata_pb2 as pb
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT

INSTANCE_ID_PATH: Final = f"{LEDGERS_ROOT}/INSTANCEID"
COOKIES_PATH: Final = f"{LEDGERS_ROOT}/cookies"
AVAILABLE_PATH: Final = f"{LEDGERS_ROOT}/available"
#: The child of ``AVAILABLE_PATH`` that is no bookie.
READ_ONLY_NAME: Final = "readonly"
READ_ONLY_PATH: Final = f"{AVAILABLE_PATH}/{READ_ONLY_NAME}"

#: Below it, by the identity of a bookie's data, what it last left in the store.
BOOKIE_MARKS_PATH: Final = "/geminga/bookie-marks"

#: The endpoint that speaks the bookie protocol.
ENDPOINT_ID: Final = "bookie"
ENDPOINT_PROTOCOL: Final = "bookie-rpc"
#: Before the path of a Unix socket, where it stands for a host: Geminga's own, in a standalone's metadata.
LOCAL_PREFIX: Final = "unix:"
_PORT_MAX: Final = 65535


def encode_service_info(host: str, port: int) -> bytes:
    """The value of a registration: one endpoint, without authentication or extensions."""
    info = pb.BookieServiceInfoFormat()
    info.endpoints.add(id=ENDPOINT_ID, port=port, host=host, protocol=ENDPOINT_PROTOCOL)
    return info.SerializeToString()


def encode_local_service_info(path: str) -> bytes:
    """The same of a bookie at the Unix socket ``path``, for processes of its own machine: ``unix:PATH``, port 0."""
    return encode_service_info(f"{LOCAL_PREFIX}{path}", 0)


def decode_service_address(data: bytes, place: str) -> tuple[str, int] | None:
    """Host and port of the endpoint of the bookie protocol; None: there are no bytes, so the id is the address.

    The host may be a Unix socket's (``unix:/path``), which has port 0.
    Raises CorruptionError that names ``place``.
    """
    if not data:
        return None
    try:
        info = pb.BookieServiceInfoFormat.FromString(data)
    except DecodeError as error:
        raise CorruptionError(f"{place} holds no description of a bookie: {error}") from error
    for endpoint in info.endpoints:
        if endpoint.protocol == ENDPOINT_PROTOCOL:
            if endpoint.host.startswith(f"{LOCAL_PREFIX}/") and not endpoint.port:
                return endpoint.host, 0
            if not endpoint.host or not 0 < endpoint.port <= _PORT_MAX:
                raise CorruptionError(f"{place} names no address: {endpoint.host!r}, port {endpoint.port}")
            return endpoint.host, endpoint.port
    raise CorruptionError(f"{place} names no endpoint of protocol {ENDPOINT_PROTOCOL}")


class BookieMark(NamedTuple):
    """What a bookie left in the metadata store, to know later that the store is no older."""

    number: int
    bookie_id: str


def encode_mark(mark: BookieMark) -> bytes:
    """The node's value."""
    return f"{mark.number} {mark.bookie_id}".encode()


def decode_mark(data: bytes, place: str) -> BookieMark:
    """The inverse. Raises CorruptionError that names ``place``."""
    number, _, bookie_id = data.decode("utf-8", "replace").partition(" ")
    if not (number.isascii() and number.isdigit()):
        raise CorruptionError(f"{place} holds no mark of a bookie: expected a number and an id, found {data[:60]!r}")
    return BookieMark(int(number), bookie_id)
