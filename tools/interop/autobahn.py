"""``make interop INTEROP_ARGS=autobahn``: Autobahn's fuzzing client against an echo on Geminga's WebSocket layer.

The layer is ``broker/websocket/socket.py`` as brokers have it, behind a socket of this machine; what is above it sends
texts back. The suite runs on Python 2.7 alone, which has to be there (``PYTHON27``, or ``python2.7``); its packages are
installed into ``build/interop/autobahn`` the first time. A case of binary messages is meant to end with 1003, as
Pulsar's API has texts alone: such a case counts as refused, if it sent one and that was the answer. Everything else has
to be OK, or what the suite calls non-strict or informational. Reports stay in ``build/interop/autobahn/reports``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table

from geminga.broker.websocket.socket import SharedRoom, SocketLimits, Upgrade, WebSocket
from geminga.runtime.frame_room import FrameRoom, UnreadResponses
from tools.interop.artifacts import BUILD, ToolError

#: The suite and what it was written for, which nobody chooses anew.
PACKAGES: Final = ("autobahntestsuite==25.10.1",)
#: Cases of 16 MiB are in it.
MESSAGE_BYTES_MAX: Final = 64 << 20
#: Of all sockets, as in a broker that may take such messages.
ROOM_BYTES: Final = 256 << 20
#: A quiet machine takes some ten minutes, most of it for compressed messages; a busy one far longer.
RUN_LIMIT_S: Final = 10_000.0
INSTALL_LIMIT_S: Final = 600.0
HEAD_BYTES_MAX: Final = 16 << 10
#: What the suite says of a case that went as RFC 6455 wants it, or as it permits.
GOOD: Final = frozenset(("OK", "NON-STRICT", "INFORMATIONAL"))
#: RFC 6455, 7.4.1: a message of a kind that is not taken.
UNSUPPORTED_DATA: Final = 1003
BINARY_OPCODE: Final = "2"
#: How the suite is begun: its own command is not installed beside its packages, and one of them has two places.
_BEGIN: Final = "import os, site; site.addsitedir(os.environ['SUITE']); from autobahntestsuite.wstest import run; run()"


T = TypeVar("T")


class Outcome(NamedTuple):
    """Of one case."""

    case: str
    behavior: str
    behavior_close: str
    #: It sent a binary message, and that was what ended it.
    is_refused: bool

    @property
    def is_good(self) -> bool:
        """As it should be."""
        return self.is_refused or (self.behavior in GOOD and self.behavior_close in GOOD)


class Echo:
    """What is above a socket: each text goes back, and nothing is read while the peer does not take them."""

    def __init__(self) -> None:
        self.socket: WebSocket | None = None

    def text(self, text: str) -> None:
        """See ``Above``."""
        socket = self.socket
        if socket is not None:
            socket.send(text)
            if not socket.is_writable:
                socket.hold()

    def writable(self) -> None:
        """See ``Above``."""
        if self.socket is not None:
            self.socket.free()

    def lost(self) -> None:
        """See ``Above``."""
        self.socket = None


class Opening(asyncio.Protocol):
    """Reads the request of a peer, and hands the connection over to a socket."""

    def __init__(self, room: SharedRoom) -> None:
        self._room = room
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """The request, or some of it."""
        transport = self._transport
        assert transport is not None
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if not end:
            if len(self._head) > HEAD_BYTES_MAX:
                transport.abort()
            return
        lines = head.decode("latin-1").split("\r\n")[1:]
        upgrade = Upgrade(
            [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)], self._room.limits
        )
        if upgrade.refusal is not None:
            transport.write(b"HTTP/1.1 %d refused\r\nconnection: close\r\n\r\n" % upgrade.refusal[0])
            transport.close()
            return
        above = Echo()
        socket = WebSocket(upgrade, self._room, above, lambda _: None, asyncio.get_running_loop().time())
        above.socket = socket
        transport.set_protocol(socket)
        socket.connection_made(transport)
        if rest:
            socket.data_received(rest)


async def serve(run: Callable[[int], Awaitable[T]]) -> T:
    """An echo at a port of this machine, while ``run(port)`` does whatever it does; what that comes to."""
    loop = asyncio.get_running_loop()
    limits = SocketLimits(message_bytes_max=MESSAGE_BYTES_MAX, idle_s=0.0, ping_s=0.0)
    room = SharedRoom(limits, FrameRoom(loop.time, ROOM_BYTES), UnreadResponses(ROOM_BYTES))
    server = await loop.create_server(lambda: Opening(room), "127.0.0.1", 0)
    try:
        return await run(server.sockets[0].getsockname()[1])
    finally:
        server.close()


def find_python() -> str:
    """Of Python 2.7. Raises ToolError."""
    named = os.environ.get("PYTHON27", "")
    for candidate in (named, "python2.7"):
        path = shutil.which(candidate) if candidate else None
        if path is not None and _answers(path):
            return path
    raise ToolError("Autobahn's suite runs on Python 2.7 alone: PYTHON27 has to name it, or python2.7 to be there")


def _answers(python: str) -> bool:
    found = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    return found.returncode == 0 and found.stdout.strip() == "(2, 7)"


def install(python: str, folder: Path) -> Path:
    """The suite's packages, installed there if they are not yet. Raises ToolError."""
    packages = folder / "packages"
    if not (packages / "autobahntestsuite").is_dir():
        command = [python, "-m", "pip", "install", "-q", "--target", str(packages), *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        if done.returncode:
            raise ToolError(f"Autobahn's suite can not be installed: {done.stderr[-500:]}")
    return packages


def specification(port: int, reports: Path, cases: str) -> Mapping[str, object]:
    """What the fuzzing client is told; ``cases``: patterns with commas."""
    return {
        "outdir": str(reports),
        "servers": [{"agent": "Geminga", "url": f"ws://127.0.0.1:{port}", "options": {"version": 18}}],
        "cases": [one.strip() for one in cases.split(",")],
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }


def outcomes(reports: Path) -> list[Outcome]:
    """What the suite reported. Raises ToolError."""
    index = reports / "index.json"
    if not index.is_file():
        raise ToolError(f"the suite left no {index}")
    found: list[Outcome] = []
    for case, one in json.loads(index.read_text())["Geminga"].items():
        report = json.loads((reports / one["reportfile"]).read_text())
        found.append(Outcome(case, one["behavior"], one["behaviorClose"], is_refused(report)))
    return sorted(found, key=lambda one: [int(part) for part in one.case.split(".")])


def is_refused(report: Mapping[str, Any]) -> bool:
    """Whether a case sent a binary message, and was told that there is none."""
    sent = report.get("txFrameStats") or {}
    return BINARY_OPCODE in sent and report.get("remoteCloseCode") == UNSUPPORTED_DATA


async def _fuzz(python: str, packages: Path, folder: Path, port: int, cases: str) -> None:
    reports, spec = folder / "reports", folder / "spec.json"
    shutil.rmtree(reports, ignore_errors=True)
    spec.write_text(json.dumps(specification(port, reports, cases)))
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", _BEGIN, "-m", "fuzzingclient", "-s", str(spec)),
        env={**os.environ, "SUITE": str(packages)},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), RUN_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ToolError(f"the suite took more than {RUN_LIMIT_S:g} s") from None
    (folder / "output.txt").write_bytes(output)
    if process.returncode:
        raise ToolError(f"the suite ended with {process.returncode}: {output[-500:].decode(errors='replace')}")


def table_of(found: list[Outcome]) -> Table:
    """How many cases of each group went how."""
    table = Table("cases", "as RFC 6455", "permitted", "binary: refused", "failed")
    groups: dict[str, Counter[str]] = {}
    for one in found:
        kind = "failed"
        if one.is_refused:
            kind = "refused"
        elif one.is_good:
            kind = "ok" if one.behavior == one.behavior_close == "OK" else "permitted"
        groups.setdefault(one.case.split(".")[0], Counter())[kind] += 1
    for group, counts in groups.items():
        table.add_row(f"{group}.*", *(str(counts[kind]) for kind in ("ok", "permitted", "refused", "failed")))
    return table


def main(arguments: list[str]) -> int:
    """Run; 0 if nothing failed. ``autobahn [--cases 1.*,5.*]``."""
    parser = argparse.ArgumentParser(prog="autobahn", description=__doc__)
    parser.add_argument("--cases", default="*", help='patterns with commas, as in "1.*,7.1.*"')
    options = parser.parse_args(arguments)
    python = find_python()
    folder = BUILD / "autobahn"
    folder.mkdir(parents=True, exist_ok=True)
    packages = install(python, folder)
    asyncio.run(serve(lambda port: _fuzz(python, packages, folder, port, options.cases)))
    found = outcomes(folder / "reports")
    console = Console(soft_wrap=True)
    console.print(table_of(found))
    failed = [one for one in found if not one.is_good]
    for one in failed:
        console.print(f"{one.case}: {one.behavior}, at its end {one.behavior_close}")
    console.print(f"{len(found)} cases, {len(failed)} failed; {folder / 'reports' / 'index.html'}")
    return 1 if failed or not found else 0
