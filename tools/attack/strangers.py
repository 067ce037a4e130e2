"""What nobody sends over sockets: damaged frames and requests, handshakes of TLS by halves, and bytes that come slowly.

Each returns what became of it. Connections are reset, not closed, so that no port of this machine stays taken.
"""

from __future__ import annotations

import random
import selectors
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper.codes import OperationType
from geminga.wire.bookkeeper.v3 import encode_request
from support.house.signing import OTHER_SECRET, token_of
from support.processes.mutations import mutate, valid_frames
from tools.attack.frames import TOPIC, damaged, handshakes

_RESET: Final = struct.pack("ii", 1, 0)
#: How a client of a bookie begins.
START_TLS: Final = encode_request(OperationType.START_TLS, 1, startTLSRequest=pb.StartTLSRequest())
#: Seconds that an answer is waited for.
_ANSWER_S: Final = 2.0
#: Halves of handshakes that are left open at a time.
HALVES_OPEN: Final = 200
_PATHS: Final = (
    "/admin/v2/clusters",
    "/admin/v2/tenants/attacked",
    "/admin/v2/namespaces/public/attacked",
    "/admin/v2/namespaces/public/default/permissions/nobody",
    "/admin/v2/persistent/public/default/attacked",
    "/admin/v2/persistent/public/default/attacked/partitions",
    "/admin/v2/persistent/public/default/attacked/subscription/s",
    "/admin/v2/schemas/public/default/attacked/schema",
    "/admin/v2/brokers/configuration/retentionCheckIntervalInSeconds/5",
    "/lookup/v2/topic/persistent/public/default/attacked",
    "/metrics/",
    "/topics/persistent/public/default/attacked",
)


def connected(port: int) -> socket.socket:
    """A connection that is reset when it is closed."""
    made = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return made


class Pace:
    """So many a second; 0: as fast as it goes."""

    def __init__(self, per_s: float) -> None:
        self._step_s = 1 / per_s if per_s else 0.0
        self._due = time.monotonic()
        self._pause = threading.Event()

    def wait(self) -> None:
        """Until it is time for the next one; what was missed is not made up for."""
        if self._step_s:
            now = time.monotonic()
            self._due = max(self._due + self._step_s, now)
            self._pause.wait(self._due - now)


def frames(port: int, count: int, seed: int, *, per_s: float = 0.0) -> Counter[str]:
    """Damaged frames, some on each connection."""
    rng, pace, found = random.Random(seed), Pace(per_s), Counter[str]()
    data = damaged([*valid_frames(TOPIC, "s"), *handshakes() * 2], seed)
    while found["frames"] < count:
        with suppress(OSError), connected(port) as made:
            found["connections"] += 1
            for _ in range(rng.randrange(1, 6)):
                pace.wait()
                made.sendall(next(data))
                found["frames"] += 1
    return found


def connections(port: int, seconds: float, *, per_s: float) -> Counter[str]:
    """Connections that say nothing, or half of something, and go."""
    pace, found = Pace(per_s), Counter[str]()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pace.wait()
        with suppress(OSError), connected(port) as made:
            found["connections"] += 1
            if found["connections"] % 2:
                made.sendall(b"\x00\x00\x00")
    return found


def requests() -> list[bytes]:
    """Requests of HTTP that need somebody who is known, with credentials that are none."""
    foreign = token_of("root", secret=OTHER_SECRET).decode()
    headers = (
        "",
        f"Authorization: Bearer {foreign}\r\n",
        "Authorization: Basic am9lOndyb25n\r\n",
        f"X-Pulsar-Auth-Method-Name: token\r\nAuthorization: Bearer {foreign[:50]}\r\nX-Original-Principal: root\r\n",
    )
    found = []
    for number, path in enumerate(_PATHS):
        for method in ("GET", "PUT", "POST", "DELETE"):
            body = b'{"allowedClusters": ["standalone"]}' if method in ("PUT", "POST") else b""
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers[number % len(headers)]}"
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            found.append((head + length).encode() + body)
    return found


def http(port: int, count: int, seed: int) -> Counter[str]:
    """Damaged requests, each on a connection of its own; statuses that were answered."""
    rng, found, known = random.Random(seed), Counter[str](), requests()
    for _ in range(count):
        data = rng.choice(known) if rng.random() < 0.05 else mutate(rng, known)
        found["requests"] += 1
        try:
            with connected(port) as made:
                made.sendall(data)
                made.shutdown(socket.SHUT_WR)
                answer = made.recv(4096)
        except OSError:
            found["nothing"] += 1
            continue
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else ""
        found[status or "nothing"] += 1
    return found


def hello() -> bytes:
    """What a client says first."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    end = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker.example")
    with suppress(ssl.SSLWantReadError):
        end.do_handshake()
    return outgoing.read()


def halves(ports: Sequence[int], count: int, seed: int) -> Counter[str]:
    """Handshakes of TLS that stop somewhere, or are damaged; some stay open for a while."""
    rng, found, whole = random.Random(seed), Counter[str](), hello()
    open_ones: list[socket.socket] = []
    for number in range(count):
        data = whole[: rng.randrange(1, len(whole) + 1)] if number % 2 else mutate(rng, [whole])
        try:
            made = connected(ports[number % len(ports)])
            made.sendall(data)
            open_ones.append(made)
        except OSError:
            found["refused"] += 1
        found["halves"] += 1
        if len(open_ones) > HALVES_OPEN:
            open_ones.pop(0).close()
    for made in open_ones:
        made.close()
    return found


@contextmanager
def discarding() -> Iterator[int]:
    """The port of a process that takes every connection and throws away what comes."""
    program = (
        "import asyncio\n"
        "async def discard(reader, writer):\n"
        "    try:\n"
        "        while await reader.read(65536): pass\n"
        "    except OSError: pass\n"
        "    writer.close()\n"
        "async def main():\n"
        "    server = await asyncio.start_server(discard, '127.0.0.1', 0)\n"
        "    print(server.sockets[0].getsockname()[1], flush=True)\n"
        "    await server.serve_forever()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def slow(port: int, first: bytes, *, connections: int, seconds: float, before: bytes = b"") -> dict[str, object]:
    """Connections that say ``first`` a byte a second each: how many the other end cut off, and after how long.

    ``before``: what they say at once, and of which the answer is awaited.
    """
    began = time.monotonic()
    selector = selectors.DefaultSelector()
    ended_s: list[float] = []
    for _ in range(connections):
        made = connected(port)
        if before:
            made.sendall(before)
            assert made.recv(4096)
        selector.register(made, selectors.EVENT_READ)
    sent, due = 0, began
    while selector.get_map() and time.monotonic() - began < seconds:
        if time.monotonic() >= due:
            due += 1.0
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                with suppress(OSError):
                    key.fileobj.send(first[sent % len(first) : sent % len(first) + 1])
            sent += 1
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                is_over = not made.recv(4096)
            except OSError:
                is_over = True
            if is_over:
                selector.unregister(made)
                made.close()
                ended_s.append(time.monotonic() - began)
    left = len(selector.get_map())
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    selector.close()
    longest = round(max(ended_s), 1) if ended_s else None
    return {"connections": connections, "cut_off": len(ended_s), "left": left, "longest_s": longest}
