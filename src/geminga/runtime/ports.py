"""Ports to the world: clock, randomness, network, disk, threads. Every other package sees only these.

Rules of all ports: calls are made on the loop's thread; completions and callbacks come back on the loop's
thread; nothing blocks the loop. Timers are the loop's own (``loop.call_later``): under simulation the loop
itself is simulated. ``geminga.sim`` implements each port with seeded faults; one contract suite
(``tests/contract``) holds all implementations to the same behaviour.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    from geminga.runtime.core.source_header import Origin

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

#: Completion of an append: ``None``, or the error; after an error nothing is known of what reached the disk.
AppendDone = Callable[[OSError | None], None]


class Clock(Protocol):
    """Time. ``monotonic`` never goes back; ``wall_ms`` may jump either way."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        ...

    def worked(self) -> float:
        """Seconds that the calling thread had a processor, from an arbitrary start."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...


class Rng(Protocol):
    """Randomness; seeded under simulation."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def below(self, bound: int) -> int:
        """An int in [0, bound)."""
        ...

    def token(self, size_bytes: int = 8) -> str:
        """``2 * size_bytes`` lowercase hex digits, for names and ids."""
        ...


class DiskFile(Protocol):
    """An open file. Its lane (a named thread) carries out its operations in the order submitted."""

    @property
    def path(self) -> str:
        """The path it was opened with."""
        ...


class ReadRequest(NamedTuple):
    """One pread: ``size_bytes`` bytes of ``file`` from ``offset``; fewer come back only at the end of the file."""

    file: DiskFile
    offset: int
    size_bytes: int


#: Completion of a group of reads, in the order of the requests; each result is bytes or its own error.
ReadDone = Callable[[Sequence[bytes | OSError]], None]


class Disk(Protocol):
    """Files. Batch-shaped: one hop to a lane's thread for a whole group, completion by callback.

    What is durable: bytes after an append with ``sync=True`` completed (or :meth:`sync_file`); the *name* of a
    created, renamed or unlinked file only after :meth:`sync_dir` of its directory. A power loss may keep or
    drop anything else, in any part.
    """

    def append(self, file: DiskFile, offset: int, buffers: Sequence[Buffer], *, sync: bool, done: AppendDone) -> None:
        """Write ``buffers`` back to back from ``offset``, then fdatasync if ``sync``; ``done`` once, later."""
        ...

    def read(self, requests: Sequence[ReadRequest], *, lane: str, done: ReadDone) -> None:
        """Carry out all reads on ``lane`` in one hop, independent of the files' own lanes; ``done`` once, later."""
        ...

    async def open_file(
        self, path: str, *, lane: str, create: bool = False, preallocate_bytes: int = 0, is_written: bool = True
    ) -> DiskFile:
        """Open for reading and writing. ``create``: must not exist yet. ``preallocate_bytes``: zero-filled size.

        ``is_written``: the zeros are written, which costs a write of them and makes small synced appends cheaper;
        else the room is only taken.
        """
        ...

    async def close_file(self, file: DiskFile) -> None:
        """Close after everything submitted before."""
        ...

    async def sync_file(self, file: DiskFile) -> None:
        """fdatasync; an error means that nothing unsynced may be trusted: stop, never retry as if it were fine."""
        ...

    async def truncate(self, file: DiskFile, size_bytes: int) -> None:
        """Cut or extend to ``size_bytes``."""
        ...

    async def file_size(self, path: str) -> int:
        """Bytes; raises FileNotFoundError."""
        ...

    async def read_file(self, path: str) -> bytes:
        """The whole of a small file; raises FileNotFoundError."""
        ...

    async def write_file(self, path: str, data: bytes) -> None:
        """Replace ``path`` atomically and durably: temporary file, fsync, rename, fsync of the directory."""
        ...

    async def make_dirs(self, path: str) -> None:
        """Create the directory and its parents, durably; fine if it exists."""
        ...

    async def list_dir(self, path: str) -> list[str]:
        """Names in the directory, sorted; raises FileNotFoundError."""
        ...

    async def sync_dir(self, path: str) -> None:
        """fsync the directory: creations, renames and unlinks before this call are durable after it."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Atomic replace; durable only after :meth:`sync_dir`."""
        ...

    async def unlink(self, path: str) -> None:
        """Remove a file; raises FileNotFoundError; durable only after :meth:`sync_dir`."""
        ...

    async def free_bytes(self, path: str) -> int:
        """Bytes available to this process on the file system of ``path``."""
        ...

    async def total_bytes(self, path: str) -> int:
        """Size of the file system of ``path``, bytes."""
        ...

    async def lock_dir(self, path: str) -> None:
        """Hold ``path`` for this process until it ends or :meth:`close`; raises BlockingIOError if another has it."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, close every file and lock, end the lanes."""
        ...


class ServerTls(NamedTuple):
    """How a listener speaks TLS."""

    #: What the next connection gets.
    context: Callable[[], ssl.SSLContext]
    #: Seconds that a handshake may take.
    handshake_s: float = 10.0


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port it listens on (the kernel's choice if 0 was asked for); a Unix socket has none."""
        ...

    async def start(self) -> None:
        """Begin to accept, where :meth:`Network.listen` was told not to; raises OSError."""
        ...

    async def close(self) -> None:
        """Stop accepting; established connections go on."""
        ...


class HeaderRule(NamedTuple):
    """How connections are taken that may begin with the PROXY header, which says where they came from."""

    #: Makes the protocol of one, given what the header says; None: nothing was said.
    factory: Callable[[Origin | None], asyncio.BaseProtocol]
    #: Whether one without it is closed.
    is_needed: bool
    #: Seconds for the header, or for the first byte where there is none.
    limit_s: float


#: Makes what a connection is told to.
NewProtocol: TypeAlias = Callable[[], asyncio.BaseProtocol]
Connected: TypeAlias = tuple[asyncio.Transport, asyncio.BaseProtocol]


class ListenOptions(TypedDict, total=False):
    """How :meth:`Network.listen` listens."""

    #: The protocol is made when its handshake is done.
    tls: ServerTls | None
    #: A connection that would leave fewer descriptors to the process is sent ``refusal`` and closed; without any,
    #: accepting waits.
    keep_free: int
    refusal: bytes
    #: False: the port is taken, and connections are refused until :meth:`Listener.start`.
    start: bool
    #: Connections may begin with the PROXY header, before TLS.
    header: HeaderRule | None


class ConnectOptions(TypedDict, total=False):
    """How :meth:`Network.connect` connects."""

    tls: ssl.SSLContext | None
    #: Whose certificate it must be, where the host is an address of it.
    server_name: str
    #: Written first, before TLS.
    preface: bytes


class Network(Protocol):
    """TCP and Unix sockets as asyncio transports and protocols, so that streams and TLS work unchanged."""

    async def listen(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ListenOptions]
    ) -> Listener:
        """Listen on ``host:port``; raises OSError."""
        ...

    async def connect(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ConnectOptions]
    ) -> Connected:
        """Connect; raises OSError."""
        ...

    async def listen_local(
        self, protocol_factory: NewProtocol, path: str, *, keep_free: int = 0, start: bool = True
    ) -> Listener:
        """Listen on the Unix socket ``path``, for processes of this user on this machine; raises OSError.

        A socket that an earlier process left there is replaced: the caller owns its directory. It goes with the
        listener. ``keep_free`` and ``start``: as :meth:`listen`.
        """
        ...

    async def connect_local(self, protocol_factory: NewProtocol, path: str) -> Connected:
        """Connect to the Unix socket ``path``; raises OSError (nobody made it, or nobody listens any more)."""
        ...


class Threads(Protocol):
    """Blocking calls (SQLite, the offline tools) on named threads, one thread a lane, in order of submission."""

    def call(self, lane: str, function: Callable[[], T]) -> Awaitable[T]:
        """Run ``function`` on ``lane``; its result or exception is the awaitable's. Raises under simulation."""
        ...

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Like :meth:`call` without a future: ``done`` is called on the loop's thread."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, end the threads."""
        ...


#: Called once when the process must not go on (failed fsync, corrupt state): name of the part, the error.
FatalHandler = Callable[[str, BaseException], None]


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a component needs from the world, handed down from the composition root."""

    clock: Clock
    rng: Rng
    disk: Disk
    network: Network
    threads: Threads
    on_fatal: FatalHandler
