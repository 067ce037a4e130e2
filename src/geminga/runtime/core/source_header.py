"""The PROXY header of HAProxy, versions 1 and 2: where a connection came from that a balancer passes on. Pure.

Version 1 is a line of at most 107 bytes::

    PROXY TCP4 192.0.2.7 198.51.100.2 51234 6650\\r\\n         or TCP6, or UNKNOWN with anything behind it

Version 2:

====== ===== =================================================================================
offset size  what
====== ===== =================================================================================
0      12    signature ``\\r\\n\\r\\n\\0\\r\\nQUIT\\n``
12     1     version 2 (high half), command: 0 LOCAL, 1 PROXY (low half)
13     1     family (high half: 0 none, 1 IPv4, 2 IPv6, 3 Unix) and kind (low half: 0 none, 1 stream)
14     2     bytes that follow, big endian
16     ..    addresses of source and destination, their ports; then values that nothing is made of here
====== ===== =================================================================================

From "The PROXY protocol, versions 1 & 2" of HAProxy, and what Netty's decoder takes, which Pulsar uses.

The reader says how many bytes it wants next, and never wants one that is behind the header: what follows is TLS, or
the protocol of the port, and is read by somebody else.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from geminga.model.errors import ProtocolError

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: First bytes of a header. No frame of Pulsar's and no record of TLS begins so.
FIRST_BYTES: Final = (b"P", b"\r")
#: Of version 1, with its end.
LINE_BYTES_MAX: Final = 107
#: Behind the first 16 of version 2: addresses take at most 216.
BODY_BYTES_MAX: Final = 2048
_LINE_START: Final = b"PROXY "
#: The shortest header of version 1, and a byte less than any of version 2.
_FIRST_WANTED: Final = len(b"PROXY UNKNOWN\r\n")
_FIXED_BYTES: Final = 16
_PORT_MAX: Final = 65535


class Origin(NamedTuple):
    """An address and a port."""

    host: str
    port: int


class HeaderReader:
    """Reads one; see the module."""

    __slots__ = ("_data", "source", "wanted")

    def __init__(self) -> None:
        self._data = bytearray()
        #: Bytes to read next, at most; 0: the header is whole.
        self.wanted = _FIRST_WANTED
        #: Where the connection came from, once it is whole; None: the header says nothing of it.
        self.source: Origin | None = None

    def feed(self, data: bytes) -> None:
        """No more than were wanted; raises ProtocolError for what is no header."""
        self._data += data
        read = self._data
        if read.startswith(_LINE_START):
            if read.endswith(b"\r\n"):
                self.source = _source_of_line(bytes(read[:-2]))
                self.wanted = 0
            elif len(read) >= LINE_BYTES_MAX:
                raise ProtocolError(f"a PROXY line of more than {LINE_BYTES_MAX} bytes")
            elif len(read) < _FIRST_WANTED:
                self.wanted = _FIRST_WANTED - len(read)
            else:
                self.wanted = 1 if read.endswith(b"\r") else 2
        elif read.startswith(SIGNATURE):
            self._of_version_2(read)
        elif _LINE_START.startswith(read) or SIGNATURE.startswith(read):
            self.wanted = _FIRST_WANTED - len(read)
        else:
            raise ProtocolError("no PROXY header")

    def _of_version_2(self, read: bytearray) -> None:
        if len(read) < _FIXED_BYTES:
            self.wanted = _FIXED_BYTES - len(read)
            return
        body_bytes = int.from_bytes(read[14:16], "big")
        if body_bytes > BODY_BYTES_MAX:
            raise ProtocolError(f"a PROXY header of {body_bytes} bytes; expected at most {BODY_BYTES_MAX}")
        self.wanted = _FIXED_BYTES + body_bytes - len(read)
        if self.wanted == 0:
            self.source = _source_of_body(read[12], read[13], bytes(read[_FIXED_BYTES:]))


def _source_of_line(line: bytes) -> Origin | None:
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    versions = {b"TCP4": 4, b"TCP6": 6}
    if len(words) != 6 or words[1] not in versions:
        raise ProtocolError("a PROXY line that is not PROXY TCP4|TCP6 address address port port")
    source = _address(words[2], versions[words[1]])
    _address(words[3], versions[words[1]])
    port = _port(words[4])
    _port(words[5])
    return Origin(source, port)


def _address(text: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        address = None
    if address is None or address.version != version:
        raise ProtocolError(f"a PROXY line whose address is none of IPv{version}")
    return str(address)


def _port(text: bytes) -> int:
    if not (text.isdigit() and len(text) <= len(str(_PORT_MAX)) and int(text) <= _PORT_MAX):
        raise ProtocolError("a PROXY line whose port is none")
    return int(text)


def _source_of_body(version_command: int, family: int, body: bytes) -> Origin | None:
    command = version_command & 0xF
    if version_command >> 4 != 2 or command > 1:
        raise ProtocolError(f"a PROXY header of version {version_command >> 4}, command {command}; expected version 2")
    if command == 0 or family >> 4 in (0, 3):
        return None  # of the balancer itself, or from where there are no addresses
    size = {0x11: 4, 0x21: 16}.get(family, 0)
    if not size:
        raise ProtocolError(f"a PROXY header of the family {family:#04x}; expected TCP over IPv4 or IPv6")
    if len(body) < 2 * size + 4:
        raise ProtocolError(f"a PROXY header with {len(body)} bytes of addresses; expected {2 * size + 4}")
    host = str(ipaddress.ip_address(body[:size]))
    return Origin(host, int.from_bytes(body[2 * size : 2 * size + 2], "big"))


def header_text(source: Origin, destination: Origin) -> bytes:
    """A header of version 1, as Pulsar's proxy sends it; of addresses that do not go together it says nothing."""
    try:
        versions = {ipaddress.ip_address(end.host.partition("%")[0]).version for end in (source, destination)}
    except ValueError:
        versions = set()
    if len(versions) != 1:
        return b"PROXY UNKNOWN\r\n"
    hosts = " ".join(end.host.partition("%")[0] for end in (source, destination))
    return f"PROXY TCP{versions.pop()} {hosts} {source.port} {destination.port}\r\n".encode()
