"""A data directory as an orderly stop and as a kill -9 leave it, and what a start makes of a damaged copy."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from geminga.app.configuration.config import config_from
from geminga.app.configuration.config_sources import from_mapping
from geminga.app.servers.standalone import StandaloneServer
from geminga.bookie import LocalBookie
from geminga.managed_ledger import ManagedLedger
from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import SystemRng
from support.worlds.ledger_world import acknowledge_cumulative, append

T = TypeVar("T")

TOPICS = ("one", "two", "three")
#: Small files, so that there are several of each kind; nothing happens by itself.
SETTINGS = {
    "brokerServicePort": 0,
    "webServicePort": 0,
    "journalPreAllocSizeMB": 0.05,
    "dbStorage_writeCacheMaxSizeMb": 0.5,
    "logSizeLimit": 20_000,
    "flushInterval": 3_600_000,
    "managedLedgerMaxEntriesPerLedger": 40,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
#: What a start and the reads of everything may take; more is a hang.
TRIAL_S = 30


@dataclass(slots=True)
class Image:
    """A data directory and what was acknowledged to be in it."""

    path: Path
    payloads: dict[str, list[bytes]] = field(default_factory=dict)
    mark_deletes: dict[str, Position] = field(default_factory=dict)
    #: The topic whose last entry alone is in the last journal group (None: nothing is in the journal).
    last_in_journal: str | None = None


@dataclass(slots=True)
class Outcome:
    """What a start on a damaged copy came to."""

    #: Why it did not start.
    refusal: str | None = None
    payloads: dict[str, list[bytes]] = field(default_factory=dict)
    mark_deletes: dict[str, Position] = field(default_factory=dict)
    #: By topic: why it could not be opened or read.
    errors: dict[str, str] = field(default_factory=dict)
    fatal: list[str] = field(default_factory=list)


async def open_topic(server: StandaloneServer, topic: str) -> ManagedLedger:
    """The managed ledger, keeping what is consumed."""
    ml: ManagedLedger = await ledgers_of(server).open(f"public/default/persistent/{topic}")
    ml.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)
    return ml


async def with_server(path: Path, main: Callable[[StandaloneServer], Awaitable[T]], fatal: list[str]) -> T:
    """Run ``main`` with a standalone on ``path``; raises what kept it from starting."""
    config = config_from(from_mapping(SETTINGS, "damage"))
    server = StandaloneServer(
        config, str(path), on_fatal=lambda part, error: fatal.append(f"{part}: {error!r}"), pid=os.getpid()
    )
    await server.start()
    try:
        return await main(server)
    finally:
        await server.stop()


def make_images(directory: Path) -> tuple[Image, Image]:
    """(as stopped, as killed): the same history, over two starts, with the last entries only in the journal."""
    stopped, killed = Image(directory / "stopped"), Image(directory / "killed")
    fatal: list[str] = []

    async def life(server: StandaloneServer, number: int) -> None:
        ledgers = {topic: await open_topic(server, topic) for topic in TOPICS}
        for round_number in range(3):
            for topic, ml in ledgers.items():
                await publish(stopped, topic, ml, [payload(topic, number, round_number, i) for i in range(25)])
                cursor = await ml.open_cursor("s", initial=EARLIEST)
                middle = ml.ledgers.position_at(ml.ledgers.entry_count // 2)
                assert await acknowledge_cumulative(cursor, middle) is None
                stopped.mark_deletes[topic] = middle
            if round_number < 2:
                await bookie_of(server).flush()
        if number == 1:
            await publish(stopped, "one", ledgers["one"], [b"the last one"])
            # The newest changes of the metadata, which may pass for a torn write, are of no account.
            for i in range(3):
                assert server.broker is not None
                await server.broker.metadata.put("/last", b"%d" % i, expected_version=None)
            shutil.copytree(stopped.path, killed.path)
            killed.payloads = {topic: list(found) for topic, found in stopped.payloads.items()}
            killed.mark_deletes = dict(stopped.mark_deletes)
            killed.last_in_journal = "one"

    async def both() -> None:
        for number in range(2):
            await with_server(stopped.path, lambda server, number=number: life(server, number), fatal)

    asyncio.run(both())
    assert not fatal
    return stopped, killed


async def publish(image: Image, topic: str, ml: ManagedLedger, payloads: list[bytes]) -> None:
    results = await append(ml, payloads)
    assert all(result.error is None for result in results)
    image.payloads.setdefault(topic, []).extend(payloads)


def payload(topic: str, life: int, round_number: int, number: int) -> bytes:
    """Distinct bytes of various sizes."""
    head = f"{topic} {life} {round_number} {number} ".encode()
    return head + bytes(SystemRng(number).below(256) for _ in range(number * 20))


def ledgers_of(server: StandaloneServer) -> Any:
    assert server.broker is not None
    return server.broker.ledgers


def bookie_of(server: StandaloneServer) -> LocalBookie:
    bookie = ledgers_of(server).bookkeeper._env.bookies.get("127.0.0.1:3181")
    assert isinstance(bookie, LocalBookie)
    return bookie


def start_and_read(path: Path) -> Outcome:
    """Start on ``path``, open every topic, read everything, stop."""
    outcome = Outcome()

    async def read_all(server: StandaloneServer) -> None:
        for topic in TOPICS:
            try:
                ml = await open_topic(server, topic)
                entries = await ml.reader.read_range(EARLIEST, 10_000, 1 << 30)
            except StorageError as error:
                outcome.errors[topic] = f"{type(error).__name__}: {error}"
                continue
            outcome.payloads[topic] = [entry.data for entry in entries]
            cursor = ml.cursors.get("s")
            if cursor is not None:
                outcome.mark_deletes[topic] = cursor.mark_delete_position

    async def trial() -> None:
        async with asyncio.timeout(TRIAL_S):
            try:
                await with_server(path, read_all, outcome.fatal)
            except GemingaError as error:
                outcome.refusal = f"{type(error).__name__}: {error}"

    asyncio.run(trial())
    return outcome


def flip(path: Path, rng: SystemRng) -> str:
    """Turn one bit of a file, or garble some bytes; what was done, for people."""
    data = bytearray(path.read_bytes())
    # Preallocated zeros are most of a journal: aim at what is used, and a little beyond.
    used = min(len(data), len(data.rstrip(b"\0")) + 64)
    offset = rng.below(max(1, used))
    count = 1 if rng.below(4) else min(1 + rng.below(600), len(data) - offset)
    for at in range(offset, offset + count):
        data[at] ^= 1 << rng.below(8)
    path.write_bytes(data)
    return f"{count} bytes of {path.name} at offset {offset}"


def check(image: Image, name: str, outcome: Outcome) -> None:
    """Either the right data or an error that names a file, never anything else; ``name``: the damaged file."""
    assert not outcome.fatal, outcome.fatal
    root = str(image.path.parent)
    if outcome.refusal is not None:
        assert root in outcome.refusal, outcome.refusal
        if name.endswith((".journal", ".log")):
            assert name in outcome.refusal, outcome.refusal
            assert "at offset" in outcome.refusal or "cookie" in name, outcome.refusal
        return
    for topic in TOPICS:
        error = outcome.errors.get(topic)
        if error is not None:
            assert name in error, error
            assert "at offset" in error, error
            continue
        expected, found = image.payloads[topic], outcome.payloads[topic]
        if topic == image.last_in_journal and name.endswith(".journal") and found == expected[:-1]:
            continue  # the torn end
        assert found == expected, f"{topic}: {len(found)} entries of {len(expected)}"
        # What a damaged cursor forgets is delivered again; it never runs ahead.
        assert outcome.mark_deletes[topic] <= image.mark_deletes[topic]
