"""Damaged frames from nobody, fed to connections of a broker in this process: what is made, held, said and logged.

Frames are those of :mod:`support.processes.mutations` and handshakes with all kinds of credentials, of which none is
good. Each connection gets some; one that is not closed by then is lost, or left until its time is up. Time is virtual.
"""

from __future__ import annotations

import gc
import logging
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from geminga.broker.access.ports import Access
from geminga.broker.authentication.config import AuthenticationConfig
from geminga.broker.authentication.opening import OpenedAuthentication
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.secret import Secret
from geminga.runtime import Runtime, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.signing import OTHER_SECRET, SECRET, in_text, token_of
from support.processes.mutations import mutate, valid_frames
from support.processes.raw_protocol import frame
from support.worlds.broker_world import BrokerWorld, Client, Type, run_with_broker

TOPIC: Final = "persistent://public/default/attacked"
_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
#: Frames of a connection, at most; and connections that are left open at a time, the oldest of which is lost then.
FRAMES_MAX: Final = 6
OPEN_MAX: Final = 200
#: Connections until virtual time passes, and milliseconds of it.
PER_PAUSE: Final = 50
PAUSE_MS: Final = 200.0
PER_COLLECTION: Final = 1000
#: Of all frames, those before memory is looked at first: by then all is loaded, and pools are as large as they get.
WARM_SHARE: Final = 0.1
#: Made by the broker itself after some minutes.
_OWN: Final = "/geminga"
#: What nobody may be told but an error.
_TOLD: Final = frozenset({Type.ERROR})


class Attacked(NamedTuple):
    """What came of it."""

    frames: int
    connections: int
    #: What was answered, by kind.
    told: dict[str, int]
    #: Connections that the broker closed before they were lost.
    closed: int
    #: Lines of the log, and virtual seconds that passed.
    log_lines: int
    seconds: float
    #: Of this process: resident bytes after the first tenth, and more at the end; objects likewise.
    rss_bytes: int
    grown_bytes: int
    grown_objects: int
    #: Nodes of the metadata that were made, changed or removed.
    changed: list[str]
    #: Connections that the broker still has when all are gone.
    left: int


def handshakes() -> list[bytes]:
    """CONNECT and AUTH_RESPONSE with credentials of all kinds, of which none is good."""
    foreign = token_of("root", secret=OTHER_SECRET)
    credentials = [
        ("token", foreign),
        ("token", token_of("root", exp=1.0)),
        ("token", foreign[: len(foreign) // 2]),
        ("token", b"." * 2000),
        ("basic", b"joe:wrong"),
        ("basic", b"nobody:" + b"x" * 600),
        ("tls", b""),
        ("none", b""),
        ("", b""),
        ("sasl", b"\x00" * 64),
        ("m" * 200, b"data"),
    ]
    frames = []
    for method, data in credentials:
        connect = pb.CommandConnect(
            client_version="attack", protocol_version=21, auth_method_name=method, auth_data=data
        )
        frames.append(frame(pb.BaseCommand(type=Type.CONNECT, connect=connect)))
        connect.feature_flags.supports_auth_refresh = True
        connect.original_principal = "root"
        connect.original_auth_data = foreign.decode()
        connect.original_auth_method = "token"
        connect.proxy_to_broker_url = "127.0.0.1:6650"
        frames.append(frame(pb.BaseCommand(type=Type.CONNECT, connect=connect)))
        answer = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name=method, auth_data=data))
        frames.append(frame(pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=answer)))
    return frames


def damaged(frames: list[bytes], seed: int) -> Iterator[bytes]:
    """Without an end; the same ones for the same seed."""
    rng = random.Random(seed)
    while True:
        yield mutate(rng, frames)


async def asking(runtime: Runtime) -> Access:
    """Providers of tokens, passwords and certificates, whose keys nobody here has."""

    async def inline(work: Callable[[], bool]) -> bool:
        await wait_ms(1)
        return work()

    settings = AuthenticationConfig(
        providers=tuple(f"{_PACKAGE}AuthenticationProvider{kind}" for kind in ("Token", "Basic", "Tls")),
        token_secret_key=Secret(in_text(SECRET)),
        basic_auth_conf=Secret(in_text(b"joe:ab7Wl3zw4JrNg\n")),
        proxy_roles=("gate",),
        verifies_original=True,
    )
    return await OpenedAuthentication(runtime, settings, compute=inline).open()


def attack(count: int, seed: int, told: Callable[[int], None] = lambda _: None) -> Attacked:
    """Feed ``count`` damaged frames; ``told`` is called now and then with how many were."""

    async def scenario(world: BrokerWorld) -> Attacked:
        world.access = await asking(world.runtime)
        await world.restart()
        return await _Attack(world, count, seed).run(told)

    return run_with_broker(scenario)


class _Attack:
    def __init__(self, world: BrokerWorld, count: int, seed: int) -> None:
        self._world = world
        self._count = count
        self._rng = random.Random(seed)
        self._frames = [*valid_frames(TOPIC, "s"), *handshakes() * 2]
        self._open: list[Client] = []
        self._told: Counter[str] = Counter()
        self._fed = self._connections = self._closed = 0

    async def run(self, told: Callable[[int], None]) -> Attacked:
        before = await nodes_of(self._world.metadata)
        began_s = self._world.runtime.clock.monotonic()
        warm: tuple[int, int] | None = None
        with counted_lines() as lines:
            while self._fed < self._count:
                self._feed_one()
                if self._connections % PER_PAUSE == 0:
                    await wait_ms(PAUSE_MS)
                    told(self._fed)
                if self._connections % PER_COLLECTION == 0:
                    # Clients of this kind are cycles, whose number would be what memory is measured by.
                    gc.collect()
                if warm is None and self._fed >= self._count * WARM_SHARE:
                    warm = _held()
            # Those that say no more are sent away when their time is up.
            await wait_ms(120_000)
            self._closed += sum(client.is_closed for client in self._open)
            for client in self._open:
                self._leave(client)
            self._open.clear()
            await wait_ms(1000)
        assert warm is not None
        held = _held()
        after = await nodes_of(self._world.metadata)
        paths = sorted(before.keys() | after.keys())
        changed = [path for path in paths if before.get(path) != after.get(path) and not path.startswith(_OWN)]
        return Attacked(
            self._fed,
            self._connections,
            dict(self._told),
            self._closed,
            lines[0],
            self._world.runtime.clock.monotonic() - began_s,
            warm[0],
            held[0] - warm[0],
            held[1] - warm[1],
            changed,
            len(self._world.broker.connections.open),
        )

    def _feed_one(self) -> None:
        client = Client(self._world.broker, 1024 + self._connections % 60_000)
        self._connections += 1
        for _ in range(self._rng.randrange(1, FRAMES_MAX + 1)):
            if client.is_closed:
                break
            # Some as they are: a handshake that is refused, and a command out of order behind it.
            whole = self._rng.random() < 0.1
            data = self._rng.choice(self._frames) if whole else mutate(self._rng, self._frames)
            client.send_bytes(data)
            self._fed += 1
        if client.is_closed:
            self._closed += 1
            self._leave(client)
        else:
            self._open.append(client)
        if len(self._open) > OPEN_MAX:
            gone = self._open.pop(0)
            self._closed += gone.is_closed
            self._leave(gone)

    def _leave(self, client: Client) -> None:
        for command, _ in client.received:
            assert command.type in _TOLD, f"nobody is told {command}"
            self._told[pb.ServerError.Name(command.error.error)] += 1
        client.lose()


async def nodes_of(store: MemoryMetadataStore) -> dict[str, bytes]:
    """All of the metadata: path to value."""
    found: dict[str, bytes] = {}
    paths = ["/"]
    while paths:
        path = paths.pop()
        node = await store.get(path)
        if node is not None:
            found[path] = node.value
        paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    return found


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """How many lines Geminga logs meanwhile."""
    count = [0]

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            count[0] += 1

    handler = Counting(logging.INFO)
    logger = logging.getLogger("geminga")
    logger.addHandler(handler)
    try:
        yield count
    finally:
        logger.removeHandler(handler)


def _held() -> tuple[int, int]:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize(), len(gc.get_objects())
