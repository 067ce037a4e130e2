"""Load on bookies, without a broker: ``python -m bench.entry_load '{"mode": "inside", ...}'``; one JSON line out.

``inside``: a bookie in this process, behind the ledger client. ``client``: the ledger client on bookies that are
processes. ``wire``: requests encoded beforehand on one connection, in version 2 or 3, answers counted and checked: what
a bookie's process can do whoever its client is. ``paced``: adds at a fixed rate, each counted from when it was due.
``read``: batch reads of a ledger over and over, so many under way on a connection, until it is killed.

Entries are random bytes; so many are under way at a time. The figures begin when the first entry goes out, or behind
``warmup_s`` where ``seconds`` are measured and not ``bytes``.
"""

from __future__ import annotations

import asyncio
import json
import random
import select
import socket
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

from bench.answers import tell
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookkeeper import BookKeeper, LedgerHandle, LocalBookiePool
from geminga.bookkeeper.core.addresses import parse_bookie_list
from geminga.bookkeeper.remote import ListedBookie, RemoteBookiePool
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import GemingaError, StorageError
from geminga.runtime import Runtime, real_runtime
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.answers import AddAnswer, BatchReadAnswer
from geminga.wire.bookkeeper.codes import StatusCode
from geminga.wire.bookkeeper.digest import DigestType, digest_for, master_key
from geminga.wire.bookkeeper.stream import AnswerDecoder

Options = dict[str, Any]
Answer = dict[str, Any]

#: Different payloads, so that no disk or file system finds them to be the same.
PAYLOADS = 64
RECEIVE_BYTES = 1 << 18
SILENCE_S = 30.0
LEDGER_ID = 1
#: Between two lines of a reader.
TELL_S = 0.2


class LoadError(Exception):
    """What was answered is not what a load may see."""


def io_of(pid: int | str = "self") -> dict[str, int]:
    """``/proc/PID/io``: bytes by call (``rchar``, ``wchar``) and of the disk (``read_bytes``, ``write_bytes``)."""
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        return {name: int(value) for name, value in (line.split(":") for line in file)}


def payloads_of(size: int) -> list[bytes]:
    """Some of that size."""
    rng = random.Random(size)
    return [rng.randbytes(size) for _ in range(PAYLOADS)]


class Window:
    """How many entries were confirmed in the measured time."""

    def __init__(self, o: Options) -> None:
        self._entries = o["bytes"] // o["size"] if o.get("bytes") else 0
        self._seconds = o.get("seconds", 0.0)
        self._warmup_s = 0.0 if self._entries else o.get("warmup_s", 0.0)
        self.sent = self.confirmed = 0
        self._started = self._from = time.perf_counter()
        self._confirmed_before: int | None = None if self._warmup_s else 0
        self._cpu = time.process_time()
        self._until = self._from

    @property
    def may_send(self) -> bool:
        """Whether more is wanted."""
        if self._entries:
            return self.sent < self._entries
        return time.perf_counter() < self._started + self._warmup_s + self._seconds

    def confirm(self, count: int) -> None:
        """So many more."""
        self.confirmed += count
        now = time.perf_counter()
        if self._confirmed_before is None:
            if now >= self._started + self._warmup_s:
                self._confirmed_before, self._from, self._cpu = self.confirmed, now, time.process_time()
        elif self.may_send or self._entries:
            self._until = now

    def answer(self, size: int) -> Answer:
        """What is told of it."""
        # What was under way at the end counts with the time it took.
        self._until = max(self._until, time.perf_counter())
        seconds = self._until - self._from
        count = self.confirmed - (self._confirmed_before or 0)
        return {
            "entries": count,
            "seconds": seconds,
            "rate": count / seconds,
            "bytes_rate": count * size / seconds,
            "cpu_us": (time.process_time() - self._cpu) / max(1, count) * 1e6,
        }


async def append_all(handle: LedgerHandle, o: Options) -> Answer:
    """Keep ``in_flight`` entries under way, in calls of ``batch``; as a broker does, the next goes when one is done."""
    payloads = payloads_of(o["size"])
    batch = o.get("batch", 1)
    window = Window(o)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    under_way = 0

    def done(_first: int, count: int, error: StorageError | None) -> None:
        nonlocal under_way
        under_way -= count
        if error is not None:
            if not over.done():
                over.set_exception(error)
            return
        window.confirm(count)
        go_on()

    def go_on() -> None:
        nonlocal under_way
        while under_way <= o["in_flight"] - batch and window.may_send and not over.done():
            first = window.sent
            under_way += batch
            window.sent += batch
            handle.append([payloads[(first + i) % PAYLOADS] for i in range(batch)], done)
        if not under_way and not over.done():
            over.set_result(None)

    go_on()
    await over
    return window.answer(o["size"])


async def inside(runtime: Runtime, o: Options) -> Answer:
    """A bookie in this process; what it wrote is told as well."""
    metadata = MemoryMetadataStore(runtime)
    config = BookieConfig(**o.get("config", {}))
    bookie = await LocalBookie.open(runtime, o["directory"], config, ledgers=_NoLedgers())
    client = BookKeeper(runtime, metadata, LocalBookiePool({"b": bookie}))
    handle = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    before, flushes = io_of(), bookie.stats.flushes
    journal, flushed = bookie.journal.bytes_written, bookie.stats.flushed_bytes
    answer = await append_all(handle, o)
    answer["flushes"] = bookie.stats.flushes - flushes
    answer["journal_bytes"] = bookie.journal.bytes_written - journal
    answer["flushed_bytes"] = bookie.stats.flushed_bytes - flushed
    answer["process_bytes"] = io_of()["write_bytes"] - before["write_bytes"]
    await bookie.close()
    answer["log_bytes"] = sum(bookie.storage.logs.sizes.values())
    return answer


class _NoLedgers:
    """Nothing is ever deleted."""

    async def live_ledger_ids(self) -> None:
        """See ``LiveLedgers``."""

    async def next_ledger_id(self) -> None:
        """See ``LiveLedgers``."""

    async def read_mark(self, instance: str) -> None:
        """See ``LiveLedgers``."""

    async def write_mark(self, instance: str, mark: int) -> None:
        """See ``LiveLedgers``."""

    async def existing(self, ledger_ids: Sequence[int]) -> None:
        """See ``LiveLedgers``."""


async def client(runtime: Runtime, o: Options) -> Answer:
    """Bookies of ``bookies`` (``host:port,...``), as brokers reach them."""
    pool = RemoteBookiePool(runtime)
    addresses = parse_bookie_list(o["bookies"])
    pool.set_listed({bookie_id: ListedBookie(address) for bookie_id, address in addresses.items()})
    ledgers = BookKeeper(runtime, MemoryMetadataStore(runtime), pool)
    size, write, ack = o["quorums"]
    handle = await ledgers.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    answer = await append_all(handle, o)
    if o.get("close", True):
        await handle.close()
    await pool.close()
    return answer


def encoded_adds(o: Options) -> tuple[memoryview, array[int]]:
    """Requests for ``count`` entries of one ledger, and where each of them ends."""
    size, ledger_id = o["size"], o.get("ledger_id", LEDGER_ID)
    digest, key = digest_for(DigestType.CRC32C, b""), master_key(b"")
    payloads = payloads_of(size)
    frames, ends = bytearray(), array("Q", [0])
    for entry_id in range(o["count"]):
        (entry,) = digest.encode(ledger_id, entry_id, entry_id - 1, entry_id * size, [payloads[entry_id % PAYLOADS]])
        if o["version"] == 3:
            frames += v3.encode_add(entry_id + 1, ledger_id, entry_id, key, entry, recovery=False)
        else:
            frames += v2.encode_add(key, entry, recovery=False)
        ends.append(len(frames))
    return memoryview(frames), ends


def connected(port: int) -> socket.socket:
    """A connection to a bookie here."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def added(data: bytes, decoder: AnswerDecoder) -> int:
    """How many adds were answered, all of them well."""
    if not data:
        raise LoadError("the bookie closed the connection")
    answers = decoder.feed(data)
    if decoder.error is not None:
        raise LoadError(str(decoder.error))
    for answer in answers:
        if not isinstance(answer, AddAnswer) or answer.status != StatusCode.EOK:
            raise LoadError(f"an add was answered {answer}")
    return len(answers)


def wire(o: Options) -> Answer:
    """One connection, frames of one ledger encoded beforehand."""
    size, count = o["size"], o["count"]
    view, ends = encoded_adds(o)
    connection = connected(o["port"])
    decoder = AnswerDecoder(o["version"])
    window = Window({**o, "bytes": count * size})
    sent_bytes = confirmed = 0
    while confirmed < count:
        end = ends[min(count, confirmed + o["in_flight"])]
        if sent_bytes < end:
            connection.setblocking(False)
            try:
                sent_bytes += connection.send(view[sent_bytes:end])
            except BlockingIOError:
                pass
        connection.setblocking(sent_bytes >= end)
        if sent_bytes >= end:
            connection.settimeout(SILENCE_S)
        try:
            data = connection.recv(RECEIVE_BYTES)
        except BlockingIOError:
            continue
        news = added(data, decoder)
        confirmed += news
        window.confirm(news)
    connection.close()
    return window.answer(size)


def paced(o: Options) -> Answer:
    """Open loop, version 3: what waits behind a slow answer counts with the time it waited."""
    rate, skipped = o["rate"], int(o["rate"] * o["warmup_s"])
    count = skipped + int(rate * o["seconds"])
    view, ends = encoded_adds({**o, "version": 3, "count": count})
    connection = connected(o["port"])
    decoder = AnswerDecoder(3)
    latencies = array("d", [0.0]) * count
    clock = time.perf_counter
    started = clock()
    sent = confirmed = 0
    while confirmed < count:
        now = clock()
        due = min(count, int((now - started) * rate) + 1)
        if due > sent:
            connection.sendall(view[ends[sent] : ends[due]])
            sent = due
        until = started + sent / rate if sent < count else now + SILENCE_S
        readable, _, _ = select.select([connection], [], [], max(0.0, until - clock()))
        if readable:
            news = added(connection.recv(RECEIVE_BYTES), decoder)
            now = clock()
            for i in range(confirmed, confirmed + news):
                # Answers come in order here: one connection, one ledger, one journal.
                latencies[i] = now - (started + i / rate)
            confirmed += news
        elif sent >= count:
            raise LoadError(f"silence for {SILENCE_S} s after {confirmed} answers")
    kept = sorted(latencies[skipped:])
    at = {f"p{p}": kept[min(len(kept) - 1, int(len(kept) * p / 100))] * 1000 for p in (50, 99, 99.9)}
    return {**at, "max": kept[-1] * 1000, "count": len(kept), "rate": rate}


def read(o: Options) -> Answer:
    """Batch reads, one behind the other; a line with how many entries were read, several times a second."""
    connection = connected(o["port"])
    decoder = AnswerDecoder(2)
    batch, entries = o["batch"], o["entries"]
    position = total = 0
    told_at = started = time.perf_counter()

    def ask() -> None:
        nonlocal position
        request = v2.encode_batch_read(1, LEDGER_ID, position, entries_max=batch, bytes_max=o["bytes_max"])
        position = (position + batch) % (entries - batch)
        connection.sendall(request)

    for _ in range(o["in_flight"]):
        ask()
    while True:
        for answer in decoder.feed(connection.recv(RECEIVE_BYTES)):
            if not isinstance(answer, BatchReadAnswer) or len(answer.entries) != batch:
                raise LoadError(f"a batch read was answered {str(answer)[:200]}")
            total += batch
            ask()
        if (now := time.perf_counter()) - told_at > TELL_S:
            told_at = now
            print(json.dumps({"read": total, "seconds": now - started}), flush=True)


ON_SOCKETS: dict[str, Callable[[Options], Answer]] = {"wire": wire, "paced": paced, "read": read}
MODES: dict[str, Callable[[Runtime, Options], Awaitable[Answer]]] = {"inside": inside, "client": client}


async def _run(o: Options) -> Answer:
    def fatal(part: str, error: BaseException) -> None:
        raise LoadError(f"{part}: {error}")

    runtime = real_runtime(fatal)
    try:
        return await MODES[o["mode"]](runtime, o)
    finally:
        await runtime.threads.close()
        await runtime.disk.close()


def run(options: Options) -> Answer:
    """Of one mode."""
    if options["mode"] in ON_SOCKETS:
        return ON_SOCKETS[options["mode"]](options)
    return {"uvloop": uvloop.run, "asyncio": asyncio.run}[options.get("loop", "uvloop")](_run(options))


if __name__ == "__main__":
    sys.exit(tell(run, (LoadError, OSError, GemingaError)))
