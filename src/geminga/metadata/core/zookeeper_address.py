"""Where a ZooKeeper is, as Pulsar's and BookKeeper's keys write it, and what it takes as a path. Pure.

``zk:host:port,host:port/chroot`` (Pulsar's ``metadataStoreUrl``, where ``zk:`` may be left out),
``metadata-store:zk:...`` (its bookies), ``zk+hierarchical://host:port;host:port/chroot/ledgers`` (BookKeeper's
``metadataServiceUri``, whose path is that of the ledgers).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from geminga.metadata.core.tree import check_path
from geminga.metadata.core.zookeeper_credentials import ZooKeeperCredentials
from geminga.metadata.core.zookeeper_tls import ZooKeeperTls
from geminga.model.errors import ConfigurationError, MetadataError, RefusedPathError

PORT_DEFAULT: Final = 2181
#: BookKeeper's path of the ledgers; below the chroot it is always this one.
LEDGERS_NAME: Final = "ledgers"
#: Bytes that a server takes as one request unless told (``jute.maxbuffer``); it hangs up on more.
REQUEST_BYTES_MAX: Final = 0xFFFFF
#: What a request is beside path and value: header, lengths, access list, flags.
REQUEST_OVERHEAD_BYTES: Final = 128

#: Layouts of BookKeeper's URI whose ledgers lie where Geminga looks; none: what the layout node says.
_LAYOUTS: Final = frozenset({"", "null", "hierarchical"})
_URI: Final = re.compile(r"zk(?:\+(?P<layout>\w*))?://(?P<rest>.*)", re.DOTALL)
#: Another store's name in front; a digit behind the colon: a host and its port.
_OTHER_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):(?!\d)", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.%\w]+\])")
#: What a server refuses in a path, by Java's 16-bit units: whatever needs two of them is refused, too.
_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_EXPECTED: Final = "expected zk:host:port,host:port/chroot or zk+hierarchical://host:port;host:port/ledgers"


class ZooKeeperAddress(NamedTuple):
    """The servers of one ensemble, and the node below which everything is."""

    #: ``host:port``, each; an IPv6 address in brackets.
    hosts: tuple[str, ...]
    #: Empty, or ``/a/b``.
    chroot: str = ""
    #: None: a plain connection.
    tls: ZooKeeperTls | None = None
    #: None: as nobody in particular.
    credentials: ZooKeeperCredentials | None = None

    def __str__(self) -> str:
        return f"zk:{','.join(self.hosts)}{self.chroot}"


def parse_zookeeper_address(text: str) -> ZooKeeperAddress:
    """See the module. Raises ConfigurationError with what was expected."""
    rest = text.strip().removeprefix("metadata-store:")
    uri = _URI.fullmatch(rest)
    if uri is not None:
        layout = uri["layout"] or ""
        if layout not in _LAYOUTS:
            raise ConfigurationError(f"{text!r}: ledgers of layout {layout!r} are not known; expected hierarchical")
        hosts, slash, path = uri["rest"].replace(";", ",").partition("/")
        chroot = _chroot_of_ledgers(text, slash + path)
    else:
        rest = rest.removeprefix("zk:")
        if _OTHER_SCHEME.match(rest):
            raise ConfigurationError(f"{text!r} is no ZooKeeper; {_EXPECTED}")
        hosts, slash, path = rest.partition("/")
        chroot = slash + path
    chroot = "" if chroot == "/" else chroot
    try:
        check_zookeeper_path(chroot or "/")
    except MetadataError as error:
        raise ConfigurationError(f"{text!r}: chroot {chroot!r} is no path; {_EXPECTED}") from error
    return ZooKeeperAddress(tuple(_host(text, host) for host in hosts.split(",")), chroot)


def _chroot_of_ledgers(text: str, path: str) -> str:
    path = path.rstrip("/")
    if not path:
        return ""
    chroot, _, name = path.rpartition("/")
    if name != LEDGERS_NAME:
        raise ConfigurationError(f"{text!r}: path {path!r}; expected one that ends with /{LEDGERS_NAME}")
    return chroot


def _host(text: str, host: str) -> str:
    name, colon, port = host.strip().rpartition(":")
    if not colon or port.endswith("]"):
        name, port = host.strip(), str(PORT_DEFAULT)
    if not _HOST.fullmatch(name) or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{text!r}: {host!r} is no host and port; {_EXPECTED}")
    return f"{name}:{int(port)}"


def check_zookeeper_path(path: str) -> None:
    """Raise MetadataError if a server would refuse the path."""
    check_path(path)
    found = _REFUSED.search(path)
    if found is not None:
        raise RefusedPathError(f"not a metadata path: {path!r}: ZooKeeper takes no character {found.group()!r} in it")
    if "/./" in f"{path}/" or "/../" in f"{path}/":
        raise RefusedPathError(f"not a metadata path: {path!r}: an element is '.' or '..'")


def check_request(path: str, value: bytes) -> None:
    """Raise MetadataError if path and value are more than a server takes at once."""
    size_bytes = len(path.encode()) + len(value) + REQUEST_OVERHEAD_BYTES
    if size_bytes > REQUEST_BYTES_MAX:
        room = max(0, REQUEST_BYTES_MAX - REQUEST_OVERHEAD_BYTES - len(path.encode()))
        raise MetadataError(f"{path}: value of {len(value)} bytes, ZooKeeper takes at most {room} there")
