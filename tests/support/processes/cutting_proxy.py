"""A TCP proxy on this machine that resets each connection after a seeded number of bytes."""

from __future__ import annotations

import random
import socket
import struct
import threading

#: Bytes that pass before a connection is cut; small ones hit the handshake, large ones the load.
BYTES_MAX = (300, 3_000, 10_000, 30_000)
_LINGER_NONE = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Listens on a port of the kernel's choice; :attr:`target` is set before the first connection comes."""

    def __init__(self, seed: int) -> None:
        self.target: tuple[str, int] | None = None
        self.is_hostile = True
        #: Connections, from now on, that are taken and left alone: nothing is read, nothing answered.
        self.forgets = 0
        #: Connections that were cut.
        self.cuts = 0
        self._rng = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._forgotten: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def close(self) -> None:
        """Stop listening and cut everything."""
        self._listener.close()
        with self._lock:
            for one in (*self._open, *self._forgotten):
                one.close()

    def cut(self) -> None:
        """Reset every connection that is open now; new ones are let through."""
        with self._lock:
            open_now, self._open = self._open, set()
            forgotten, self._forgotten = self._forgotten, []
        for one in forgotten:
            one.close()
        for one in open_now:
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self.cuts += 1

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self.forgets:
                    self.forgets -= 1
                    with self._lock:
                        self._forgotten.append(client)
                    continue
                assert self.target is not None
                server = socket.create_connection(self.target)
            except OSError:
                return
            with self._lock:
                self._open |= {client, server}
                left = [self._rng.randrange(self._rng.choice(BYTES_MAX)) if self.is_hostile else None]
                cut_up = self._rng.random() < 0.5
            for source, sink, counts in ((client, server, cut_up), (server, client, not cut_up)):
                arguments = (source, sink, left if counts else [None])
                threading.Thread(target=self._relay, args=arguments, daemon=True, name="relay").start()

    def _relay(self, source: socket.socket, sink: socket.socket, left: list[int | None]) -> None:
        try:
            while data := source.recv(65536):
                if left[0] is not None and len(data) > left[0]:
                    sink.sendall(data[: left[0]])
                    self.cuts += 1
                    for one in (source, sink):
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
                    break
                if left[0] is not None:
                    left[0] -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        with self._lock:
            self._open -= {source, sink}
        source.close()
        sink.close()
