"""The simulated network: links between nodes with delays, partitions, refusals; connections over them.

The scenario holds the one :class:`SimNetwork`; each boot of a node gets a :class:`NodeNetwork`, the ``Network``
port. A node is reached by its name or its address; ``localhost`` and ``127.0.0.1`` are the node itself.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import zlib
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Final, Unpack

from geminga.runtime.network import check_address
from geminga.runtime.ports import Connected, ConnectOptions, ListenOptions, NewProtocol, ServerTls
from geminga.sim.boot import Boot, Host
from geminga.sim.errors import SimError
from geminga.sim.loop import SimLoop
from geminga.sim.rng import Stream
from geminga.sim.trace import Trace
from geminga.sim.transport import Pipe, SimTransport

LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
ANY_HOSTS: Final = ("", "0.0.0.0", "::")
#: One-way delay of a link unless set, seconds.
DELAY_RANGE_DEFAULT: Final = (50e-6, 500e-6)
#: Virtual seconds a connect tries before it times out.
CONNECT_TIMEOUT_S: Final = 20.0
#: Virtual seconds until a lost segment is sent again (Linux: TCP_RTO_MIN).
RETRANSMIT_S: Final = 0.2
#: Virtual seconds between a connect's tries on a blocked link.
CONNECT_RETRY_S: Final = 1.0
#: First port given out for port 0 and for the client's end.
EPHEMERAL_PORT_FIRST: Final = 32768


class SimListener:
    """A listening port of one boot."""

    __slots__ = (
        "_network",
        "boot",
        "context",
        "factory",
        "host",
        "is_accepting",
        "is_open",
        "keep_free",
        "only_local",
        "port",
        "refusal",
    )

    def __init__(
        self,
        network: SimNetwork,
        boot: Boot,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        only_local: bool,
        port: int,
        keep_free: int,
        refusal: bytes,
        is_accepting: bool,
    ) -> None:
        self._network = network
        self.boot = boot
        self.host = boot.node.name
        self.factory = factory
        #: Bound to the loopback address: other nodes are refused.
        self.only_local = only_local
        #: The port it listens on.
        self.port = port
        #: Where the protocol factory and the protocols run.
        self.context = copy_context()
        self.is_open = True
        #: Connections that would leave fewer descriptors are told :attr:`refusal` and closed.
        self.keep_free = keep_free
        self.refusal = refusal
        #: False: bound only, as before :meth:`start`.
        self.is_accepting = is_accepting

    async def start(self) -> None:
        """Begin to accept."""
        self.is_accepting = True

    async def close(self) -> None:
        """Stop accepting."""
        self._network.unlisten(self)


class SimNetwork:
    """See the module's docstring."""

    def __init__(self, loop: SimLoop, rng: Stream, trace: Trace, nodes: Mapping[str, Host]) -> None:
        self.loop = loop
        self._rng = rng
        self._trace = trace
        self._nodes = nodes
        self._listeners: dict[tuple[str, int], SimListener] = {}
        #: Unix sockets: the port that stands for each, by node and path. They outlive who made them.
        self._local_ports: dict[tuple[str, str], int] = {}
        self._transports: dict[SimTransport, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        #: Pipes with something to deliver once the partition heals.
        self._held_back: dict[Pipe, None] = {}
        self._refusing: set[str] = set()
        #: Descriptors that a node may have open, of which each end of a connection is one; others: no limit.
        self._descriptor_limits: dict[str, int] = {}
        self._delays: dict[tuple[str, str], tuple[float, float]] = {}
        self._bandwidths: dict[tuple[str, str], float] = {}
        self._next_port = EPHEMERAL_PORT_FIRST
        #: Chance that a write arrives cut in two, and that waiting chunks arrive joined.
        self.cut_percent = 20.0
        self.join_percent = 50.0
        #: Chance that a chunk is lost once and sent again, which delays all behind it.
        self.retransmit_percent = 0.5

    # -- for scenarios

    def partition(self, source: Host, target: Host, *, one_way: bool = False) -> None:
        """Hold back everything between two nodes (or from source to target only) until :meth:`heal`."""
        self._blocked.add((source.name, target.name))
        if not one_way:
            self._blocked.add((target.name, source.name))

    def heal(self, source: Host | None = None, target: Host | None = None) -> None:
        """End all partitions, or those between two nodes: what was held back arrives, unless its connection is gone."""
        if source is None or target is None:
            self._blocked.clear()
        else:
            self._blocked -= {(source.name, target.name), (target.name, source.name)}
        held_back, self._held_back = self._held_back, {}
        for pipe in held_back:
            if self.is_blocked(pipe.sender.host, pipe.receiver.host):
                self._held_back[pipe] = None
            else:
                pipe.kick()

    def set_delay(self, source: Host, target: Host, low_s: float, high_s: float) -> None:
        """One-way delay of the link in both directions, seconds."""
        for pair in ((source.name, target.name), (target.name, source.name)):
            self._delays[pair] = (low_s, high_s)

    def set_bandwidth(self, source: Host, target: Host, bytes_per_s: float | None) -> None:
        """Throttle one direction (a slow reader); None: as fast as the delay allows."""
        if bytes_per_s is None:
            self._bandwidths.pop((source.name, target.name), None)
        else:
            self._bandwidths[source.name, target.name] = bytes_per_s

    def refuse(self, node: Host, *, refuse: bool = True) -> None:
        """Refuse connects to ``node``, or accept them again."""
        (self._refusing.add if refuse else self._refusing.discard)(node.name)

    def limit_descriptors(self, node: Host, limit: int | None) -> None:
        """How many descriptors ``node`` may have open, as far as connections go; None: as many as it likes."""
        if limit is None:
            self._descriptor_limits.pop(node.name, None)
        else:
            self._descriptor_limits[node.name] = limit

    def has_descriptor(self, listener: SimListener) -> bool:
        """Whether a connection that was just made may stay, though the listener keeps some free."""
        limit = self._descriptor_limits.get(listener.host)
        if limit is None:
            return True
        return sum(t.host == listener.host for t in self._transports) <= limit - listener.keep_free

    def reset_connections(self, first: Host, second: Host | None = None) -> int:
        """Break every connection of ``first`` (with ``second`` only, if given) at both ends; returns how many."""
        broken = 0
        for transport in list(self._transports):
            concerned = transport.host == first.name and (second is None or transport.peer.host == second.name)
            if concerned and not transport.is_lost:
                broken += 1
                self.reset(transport, _reset_error())
        return broken

    def connections(self, node: Host) -> list[SimTransport]:
        """The node's open ends, oldest first."""
        return [transport for transport in self._transports if transport.host == node.name]

    # -- for nodes

    def for_node(self, node: Host, boot: Boot) -> NodeNetwork:
        """The ``Network`` port of one boot."""
        return NodeNetwork(self, node, boot)

    def node_down(self, node: Host, boot: Boot, *, reset_peers: bool) -> None:
        """The boot is dead: its listeners and ends vanish; peers are reset, or hear nothing."""
        for listener in list(self._listeners.values()):
            if listener.boot is boot:
                self.unlisten(listener)
        for transport in list(self._transports):
            if transport.boot is boot:
                transport.is_lost = True
                transport.outgoing.drop_buffer()  # what has left the host still arrives
                self.forget(transport)
                if reset_peers and not transport.peer.is_lost:
                    self.reset_later(transport.peer)

    def node_up(self, node: Host) -> None:
        """The node is back: what peers of its former life still send is answered with a reset."""
        for transport in list(self._transports):
            if transport.peer.host == node.name and transport.outgoing.is_waiting:
                self.sending(transport.outgoing)

    def sending(self, pipe: Pipe) -> None:
        """Reset the sender if the other end is of a former life of a node that is up again."""
        end = pipe.receiver
        if end.boot is not None and not end.boot.alive and end.boot.node.is_up and not pipe.sender.is_lost:
            self.reset_later(pipe.sender)

    def listen(
        self,
        boot: Boot,
        factory: NewProtocol,
        host: str,
        port: int,
        options: ListenOptions,
    ) -> SimListener:
        """Bind; raises OSError (EADDRINUSE, EADDRNOTAVAIL, EINVAL)."""
        check_address(host, port)
        node = boot.node
        if host not in (*LOOPBACK_HOSTS, *ANY_HOSTS, node.name, node.address):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of node {node.name}")
        if port == 0:
            port = self.take_port()
        if (node.name, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of node {node.name} is taken")
        listener = SimListener(
            self,
            boot,
            factory,
            only_local=host in LOOPBACK_HOSTS,
            port=port,
            keep_free=options.get("keep_free", 0),
            refusal=options.get("refusal", b""),
            is_accepting=options.get("start", True),
        )
        self._listeners[node.name, port] = listener
        return listener

    def local_port(self, boot: Boot, path: str, *, is_new: bool) -> int:
        """The port that stands for a Unix socket of the node; raises FileNotFoundError unless ``is_new``."""
        key = (boot.node.name, path)
        if is_new:
            self._local_ports[key] = self.take_port()
        elif key not in self._local_ports:
            raise FileNotFoundError(errno.ENOENT, f"connect to {path}: no such socket")
        return self._local_ports[key]

    def unlisten(self, listener: SimListener) -> None:
        """Stop accepting."""
        listener.is_open = False
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    def find(self, boot: Boot, host: str) -> str:
        """Name of the node that ``host`` means to ``boot``; raises OSError."""
        if host in LOOPBACK_HOSTS or host in ANY_HOSTS:
            return boot.node.name
        for node in self._nodes.values():
            if host in (node.name, node.address):
                return node.name
        raise OSError(errno.ENOENT, f"name or service not known: {host}")

    def accepting(self, source: str, target: str, port: int) -> SimListener | None:
        """The listener that takes a connection from ``source``, if any."""
        listener = self._listeners.get((target, port))
        if listener is None or not listener.is_accepting or target in self._refusing:
            return None
        if listener.only_local and source != target:
            return None
        return listener

    def join(self, boot: Boot, context: Context, listener: SimListener) -> tuple[SimTransport, SimTransport]:
        """The two ends of a new connection: client's, server's."""
        node = boot.node
        local, port = (node.address, self.take_port()), listener.port
        remote = (listener.boot.node.address, port)
        if node.name == listener.host:
            local, remote = ("127.0.0.1", local[1]), ("127.0.0.1", port)
        client = SimTransport(self, boot, context, node.name, local=local, remote=remote)
        server = SimTransport(self, listener.boot, listener.context.copy(), listener.host, local=remote, remote=local)
        client.peer, server.peer = server, client
        client.outgoing, server.outgoing = Pipe(self, client, server), Pipe(self, server, client)
        self._transports[client] = self._transports[server] = None
        # The client's end has no protocol until the answer of the server is back.
        client.reading_paused = True
        self._trace.add(self.loop.time(), node.name, "connected", listener.host, port)
        return client, server

    def take_port(self) -> int:
        """A port nobody uses."""
        self._next_port += 1
        return self._next_port - 1

    # -- for transports

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether a partition holds back this direction."""
        return (source, target) in self._blocked

    def has_bandwidth(self, source: str, target: str) -> bool:
        """Whether this direction is throttled."""
        return (source, target) in self._bandwidths

    def delay_s(self, source: str, target: str, size_bytes: int = 0) -> float:
        """A seeded one-way delay, with the time the bytes take."""
        low, high = self._delays.get((source, target), DELAY_RANGE_DEFAULT)
        bandwidth = self._bandwidths.get((source, target))
        retransmitted = self._rng.random() * 100 < self.retransmit_percent
        delay_s = self._rng.uniform(low, high) + (RETRANSMIT_S if retransmitted else 0.0)
        return delay_s + (size_bytes / bandwidth if bandwidth else 0.0)

    def cut(self, data: bytes) -> list[bytes]:
        """``data`` whole, or in two at a seeded place."""
        if len(data) > 1 and self._rng.random() * 100 < self.cut_percent:
            place = self._rng.randrange(1, len(data))
            return [data[:place], data[place:]]
        return [data]

    def joins(self) -> bool:
        """Whether chunks that wait together are delivered together this time."""
        return self._rng.random() * 100 < self.join_percent

    def delivered(self, source: str, target: str, chunk: bytes) -> None:
        """For the trace."""
        self._trace.add(self.loop.time(), source, "->", target, len(chunk), zlib.crc32(chunk))

    def reset(self, transport: SimTransport, error: Exception | None) -> None:
        """Break a connection now at ``transport``, and at its peer after a delay."""
        peer = transport.peer
        peer.outgoing.stop()
        transport.lose(error)
        if not peer.is_lost:
            self.reset_later(peer)

    def reset_later(self, transport: SimTransport) -> None:
        """A reset is on its way to ``transport``, behind what was sent before; a partition holds it back too."""
        when = self.loop.time() + self.delay_s(transport.peer.host, transport.host)
        when = max(when, transport.peer.outgoing.last_arrival_s) + 1e-9
        self.loop.call_at(when, self._reset_arrives, transport, context=transport.context)

    def hold_back(self, pipe: Pipe) -> None:
        """Kick ``pipe`` when the partition heals."""
        self._held_back[pipe] = None

    def forget(self, transport: SimTransport) -> None:
        """The connection is over at this end."""
        self._transports.pop(transport, None)

    def _reset_arrives(self, transport: SimTransport) -> None:
        if transport.is_lost:
            return
        if self.is_blocked(transport.peer.host, transport.host):
            # Lost on the way; the peer's kernel answers the next segment again, which a retry stands for.
            self.loop.call_later(CONNECT_RETRY_S, self._reset_arrives, transport, context=transport.context)
            return
        transport.peer.outgoing.stop()
        transport.lose(_reset_error())


class NodeNetwork:
    """The ``Network`` port of one boot."""

    __slots__ = ("_boot", "_network")

    def __init__(self, network: SimNetwork, node: Host, boot: Boot) -> None:
        self._network = network
        self._boot = boot

    async def listen(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ListenOptions]
    ) -> SimListener:
        """Listen on ``host:port``; raises OSError."""
        _refuse_tls(options.get("tls"))
        if options.get("header") is not None:
            raise SimError("the simulated network reads no PROXY headers")
        if not self._boot.alive:
            await self._network.loop.create_future()
        return self._network.listen(self._boot, protocol_factory, host, port, options)

    async def connect(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ConnectOptions]
    ) -> Connected:
        """Connect; raises ConnectionRefusedError, TimeoutError."""
        _refuse_tls(options.get("tls"))
        if options.get("preface"):
            raise SimError("the simulated network writes no PROXY headers")
        check_address(host, port)
        network, source = self._network, self._boot.node.name
        target = network.find(self._boot, host)
        deadline = network.loop.time() + CONNECT_TIMEOUT_S
        await self._wait(network.delay_s(source, target))
        while network.is_blocked(source, target) or network.is_blocked(target, source):
            if network.loop.time() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"connect to {host}:{port} timed out")
            await self._wait(CONNECT_RETRY_S)
        listener = network.accepting(source, target, port)
        if listener is None:
            await self._wait(network.delay_s(target, source))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {host}:{port} refused")
        client, server = network.join(self._boot, copy_context(), listener)
        server.call_soon(_accept if network.has_descriptor(listener) else _refuse, server, listener)
        try:
            await self._wait(network.delay_s(target, source))
        except asyncio.CancelledError:
            client.abort()
            raise
        if client.is_lost:
            raise _reset_error()
        protocol = protocol_factory()
        client.set_protocol(protocol)
        protocol.connection_made(client)
        client.reading_paused = False
        server.outgoing.kick()
        return client, protocol

    async def listen_local(
        self, protocol_factory: NewProtocol, path: str, *, keep_free: int = 0, start: bool = True
    ) -> SimListener:
        """Listen on a Unix socket of the node, for which a port of its loopback stands."""
        if not self._boot.alive:
            await self._network.loop.create_future()
        port = self._network.local_port(self._boot, path, is_new=True)
        return await self.listen(protocol_factory, LOOPBACK_HOSTS[0], port, keep_free=keep_free, start=start)

    async def connect_local(self, protocol_factory: NewProtocol, path: str) -> Connected:
        """Connect; raises FileNotFoundError, ConnectionRefusedError."""
        port = self._network.local_port(self._boot, path, is_new=False)
        return await self.connect(protocol_factory, LOOPBACK_HOSTS[0], port)

    async def _wait(self, seconds: float) -> None:
        loop = self._network.loop
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, future)
        try:
            await future
        finally:
            timer.cancel()


def _accept(server: SimTransport, listener: SimListener) -> None:
    if not server.is_lost:
        protocol = listener.factory()
        server.set_protocol(protocol)
        protocol.connection_made(server)


def _refuse(server: SimTransport, listener: SimListener) -> None:
    if not server.is_lost:
        server.set_protocol(asyncio.Protocol())
        if listener.refusal:
            server.write(listener.refusal)
        server.close()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse_tls(tls: ssl.SSLContext | ServerTls | None) -> None:
    if tls is not None:
        raise SimError("TLS is not simulated: its bytes come from the system's randomness")


def _reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
