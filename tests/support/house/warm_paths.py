"""Which files a warm SEND and a warm ACK run through, and which of them ARCHITECTURE.md walks.

A broker over a real bookie on a simulated node: what is traced goes down to the bookie's journal and comes back to the
client. The simulator's disk and network, and what the client in the test calls, do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.house.source_tree import SOURCE
from support.worlds.broker_world import BrokerWorld, Client, Type, send_frame

_PRODUCT = f"{SOURCE / 'geminga'}/"
#: Of the product, but no stop of anybody's: what stands for the operating system here, and what protoc wrote.
_NOT_READ = ("sim/", "wire/_generated/")
#: Where what the broker wrote reaches the client of the test.
_CLIENT_TAKES = Client._on_write.__code__


class Unknown:
    """Nobody says which ledgers there are: the bookie collects nothing."""

    async def live_ledger_ids(self) -> set[int] | None:
        return None

    async def next_ledger_id(self) -> int | None:
        return None

    async def read_mark(self, instance: str) -> None:
        return None

    async def write_mark(self, instance: str, mark: int) -> None:
        pass

    async def existing(self, ledger_ids: Sequence[int]) -> set[int] | None:
        live = await self.live_ledger_ids()
        return None if live is None else {ledger_id for ledger_id in ledger_ids if ledger_id in live}


@contextmanager
def traced(found: set[str]) -> Iterator[None]:
    """Note the files of the product, by their path below ``geminga``, whose functions the broker calls."""
    in_client = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal in_client
        code = frame.f_code
        if code is _CLIENT_TAKES:
            in_client += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not in_client and code.co_filename.startswith(_PRODUCT):
            path = code.co_filename.removeprefix(_PRODUCT)
            if not path.startswith(_NOT_READ):
                found.add(path)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def _files_of(scenario: Callable[[BrokerWorld, set[str]], Awaitable[None]]) -> set[str]:
    found: set[str] = set()

    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            config = BookieConfig(journal_pre_alloc_size_mb=1)
            bookie = await LocalBookie.open(node.runtime, "/bookie", config, ledgers=Unknown())
            broker_world = BrokerWorld(node.runtime, BrokerConfig(), ManagedLedgerConfig(), bookie=bookie)
            await broker_world.start()
            await scenario(broker_world, found)
            await broker_world.stop()
            await bookie.close()

        await world.node("broker").run(on_node)

    sim.run(main)
    return found


def files_of_a_send() -> set[str]:
    """From its bytes to its receipt; the producer has sent before."""

    async def scenario(world: BrokerWorld, found: set[str]) -> None:
        client = await world.client()
        await client.create_producer()
        for sequence_id in range(3):
            await client.publish(sequence_id)
        frame = send_frame(3)
        with traced(found):
            client.send_bytes(frame)
            await client.receipt()

    return _files_of(scenario)


def files_of_an_ack() -> set[str]:
    """From its bytes to the response that it asks for; the consumer has acknowledged before."""

    async def scenario(world: BrokerWorld, found: set[str]) -> None:
        client = await world.client()
        await client.create_producer()
        for sequence_id in range(4):
            await client.publish(sequence_id)
        await client.subscribe()
        frames = []
        for request_id in range(100, 104):
            message_id = (await client.expect(Type.MESSAGE)).message.message_id
            ack = pb.CommandAck(
                consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id], request_id=request_id
            )
            frames.append(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
        for frame in frames[:-1]:
            client.send_bytes(frame)
            await client.expect(Type.ACK_RESPONSE)
        with traced(found):
            client.send_bytes(frames[-1])
            await client.expect(Type.ACK_RESPONSE)

    return _files_of(scenario)


class Walk(NamedTuple):
    """What the page says of one path."""

    #: Numbered stops, in bold, in their order, each with the files that are read there.
    stops: list[list[str]]
    #: Files that are called on the way, with a reason why nobody stops there.
    called: list[str]
    #: Stops of another walk that it goes on with: first and last.
    goes_on: range

    @property
    def files(self) -> list[str]:
        """Of its own stops."""
        return [file for stop in self.stops for file in stop]


_STOP_FILE = re.compile(r"\*\*`([\w/]+\.py)`\*\*")
_CALLED_FILE = re.compile(r"`([\w/]+\.py)`\s\(")
_GOES_ON = re.compile(r"stops (\d+) to (\d+) of a SEND")


def walk_of(page: str, title: str) -> Walk:
    """The walk of ARCHITECTURE.md below the bold line that begins with ``title``."""
    start = page.index(f"**{title}:")
    end = re.compile(r"^(?:\*\*[A-Z]|## )", re.MULTILINE).search(page, start + 2)
    text = page[start : end.start() if end is not None else len(page)]
    numbered, _, called = text.partition("Called on the way")
    stops = [_STOP_FILE.findall(item) for item in re.split(r"^\d+\. ", numbered, flags=re.MULTILINE)[1:]]
    goes_on = _GOES_ON.search(numbered)
    return Walk(
        stops,
        _CALLED_FILE.findall(called),
        range(int(goes_on[1]), int(goes_on[2]) + 1) if goes_on is not None else range(0),
    )


def walk_violations(walk: Walk, traced_files: Iterable[str], files_max: int, shared: Iterable[str] = ()) -> list[str]:
    """What is wrong with a walk that runs through ``traced_files``; ``shared`` are the stops that it goes on with."""
    run = set(traced_files)
    own, called, shared = walk.files, walk.called, set(shared)
    found = [f"{file} is walked, and not run through" for file in own if file not in run]
    found += [f"{file} is told as called on the way, and is not run through" for file in called if file not in run]
    found += [f"{file} is run through, and told nowhere" for file in sorted(run - shared - {*own, *called})]
    found += [f"{file} is a stop that is gone on with, and not run through" for file in sorted(shared - run)]
    told = [*own, *called, *shared]
    found += [f"{file} is told more than once" for file in sorted({file for file in told if told.count(file) > 1})]
    found += [f"stop {number} names no file" for number, files in enumerate(walk.stops, 1) if not files]
    if len(run) > files_max:
        found.append(f"{len(run)} files are run through, {files_max} may: {' '.join(sorted(run))}")
    elif len(run) < files_max:
        found.append(f"{len(run)} files are run through; the budget is lowered from {files_max} to it")
    return found


def read_page(root: Path) -> str:
    """ARCHITECTURE.md."""
    return (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
