"""The broker processes of a standalone: started, told what they are, started again when they end, stopped in order.

One that lives and is not heard of any more is told of, and ended after a while, or nobody would serve its ports again.

Each has a pipe for its standard input, which tells it first what to do and then nothing: when this process is gone,
however it went, the pipe ends, and with it the child. Its standard output tells that it serves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.app.servers.core.broker_children import LOOK_S, SILENT_LOOKS_MAX, ChildPlan, Hearing, Restarts
from geminga.app.servers.listeners import Addresses
from geminga.model.errors import UnavailableError
from geminga.runtime import get_logger, spawn, wait_ms

COMMAND: Final = (sys.executable, "-m", "geminga.app.servers.broker_child")
#: Bytes of what a child writes to its standard output that are read at once.
OUTPUT_BYTES: Final = 4096

_log = get_logger(__name__)


class _Served(NamedTuple):
    """What a child that serves told."""

    addresses: Addresses
    pid: int


class _Child:
    """One of them, over all its lives."""

    def __init__(self, number: int, broker_port: int, web_port: int) -> None:
        self.number = number
        #: As asked for; where that was 0, those of its first life, so that clients find it again.
        self.broker_port = broker_port
        self.web_port = web_port
        self.lives = 0
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        #: Its first life serves, or ended before.
        self.first: asyncio.Future[Addresses] = asyncio.get_running_loop().create_future()
        self.restarts = Restarts()


class BrokerChildren:
    """See the module."""

    def __init__(
        self,
        ports: Sequence[tuple[int, int]],
        plan: Callable[[int, str, int, int], ChildPlan],
        ended: Callable[[str], Awaitable[None]],
        is_heard: Callable[[str], bool],
        *,
        command: Sequence[str] = COMMAND,
        look_s: float = LOOK_S,
    ) -> None:
        """``ports``: the broker's and the web port of each, 0: the kernel's choice.

        ``plan(number, name, broker_port, web_port)``: what one is told. ``ended(name)``: it is gone for certain.
        ``is_heard(name)``: its session lives. ``look_s``: between two looks at that.
        """
        self._plan = plan
        self._ended = ended
        self._is_heard = is_heard
        self._look_s = look_s
        self._command = command
        self._children = [_Child(number, *pair) for number, pair in enumerate(ports)]
        self._stop = asyncio.Event()

    async def start(self) -> Addresses:
        """Start all, and wait until all serve; where the first does. Raises UnavailableError if one ends before."""
        for child in self._children:
            child.task = spawn(self._keep(child), name=f"broker-process-{child.number}")
        found = await asyncio.gather(*(child.first for child in self._children))
        return found[0]

    def pids(self) -> list[int]:
        """Of those that run, in order."""
        return [child.process.pid for child in self._children if child.process is not None]

    def tell(self, number: signal.Signals) -> None:
        """Pass a signal on to those that run."""
        for child in self._children:
            if child.process is not None:
                _tell(child.process, number)

    async def close(self) -> None:
        """End all in good order, and wait for it: each gives its bundles away and closes its topics."""
        self._stop.set()
        for child in self._children:
            if child.process is not None:
                _tell(child.process, signal.SIGTERM)
                # One that was paused hears it then.
                _tell(child.process, signal.SIGCONT)
        tasks = [child.task for child in self._children if child.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    # ---- one of them

    async def _keep(self, child: _Child) -> None:
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            begin = loop.time()
            story = await self._live(child)
            if self._stop.is_set():
                break
            if not child.first.done():
                child.first.set_exception(UnavailableError(f"broker process {child.number} {story} before it served"))
                return
            wait_s = child.restarts.wait_s(loop.time() - begin)
            _log.error("broker process %d %s: another is started in %g s", child.number, story, wait_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
            except TimeoutError:
                pass
        if not child.first.done():
            child.first.cancel()

    async def _live(self, child: _Child) -> str:
        """One life, from start to end; how it ended."""
        child.lives += 1
        name = f"broker-{child.number}.{child.lives}"
        pipe = asyncio.subprocess.PIPE
        try:
            # A session of its own: what a terminal tells its foreground, only the parent hears.
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, start_new_session=True
            )
        except OSError as error:
            return f"can not be started ({error.strerror or error})"
        child.process = process
        if self._stop.is_set():
            _tell(process, signal.SIGTERM)
        plan = self._plan(child.number, name, child.broker_port, child.web_port)
        watching = spawn(self._watch(child.number, name, process), name=f"watch-broker-process-{child.number}")
        try:
            served = await _first_line(process, plan)
            if served is not None:
                self._serves(child, served)
                await _drained(process)
            code = await process.wait()
        finally:
            watching.cancel()
        child.process = None
        await self._ended(name)
        return (
            f"(pid {process.pid}) was ended by {_name_of(-code)}"
            if code < 0
            else f"(pid {process.pid}) ended with {code}"
        )

    async def _watch(self, number: int, name: str, process: asyncio.subprocess.Process) -> None:
        """Also while all end: nobody waits for one that does not hear that it is to.

        One that does leaves first, and its silence is nothing to tell.
        """
        hearing = Hearing()
        while not hearing.hangs:
            await wait_ms(self._look_s * 1000)
            hearing.look(is_heard=self._is_heard(name), is_to_end=self._stop.is_set())
            if hearing.fell_silent and not self._stop.is_set():
                _log.error(
                    "broker process %d (pid %d) lives and is not heard of: it is ended unless it is within %g s",
                    number,
                    process.pid,
                    SILENT_LOOKS_MAX * self._look_s,
                )
        _log.error("broker process %d (pid %d) hangs: it is ended", number, process.pid)
        _tell(process, signal.SIGKILL)

    def _serves(self, child: _Child, served: _Served) -> None:
        child.broker_port, child.web_port = served.addresses.broker_port, served.addresses.web_port
        if child.first.done():
            _log.warning("broker process %d serves again (pid %d)", child.number, served.pid)
        else:
            _log.info(
                "broker process %d serves at %s (pid %d)", child.number, served.addresses.broker_service_url, served.pid
            )
            child.first.set_result(served.addresses)


async def _first_line(process: asyncio.subprocess.Process, plan: ChildPlan) -> _Served | None:
    """Tell it what it is; where it serves, or None if it ends before."""
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdin.is_closing():  # killed already: uvloop raises RuntimeError where asyncio writes into the void
        return None
    try:
        process.stdin.write(plan.encode())
        await process.stdin.drain()
        while line := await process.stdout.readline():
            served = _served(line)
            if served is not None:
                return served
    except (OSError, ValueError):  # it is gone, or wrote a line without end
        pass
    return None


def _served(line: bytes) -> _Served | None:
    """Where it serves; None: the line says something else, as what is loaded with a program may."""
    try:
        fields = json.loads(line)
        broker_url, web_url, pid = fields["brokerServiceUrl"], fields["webServiceUrl"], int(fields["pid"])
        broker_port, web_port = urlsplit(broker_url).port, urlsplit(web_url).port
    except (ValueError, TypeError, KeyError):
        return None
    with_tls = (str(fields.get(key, "")) for key in ("brokerServiceUrlTls", "webServiceUrlTls"))
    return _Served(Addresses(broker_url, web_url, broker_port or 0, web_port or 0, *with_tls), pid)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """It is to say nothing more; whatever it says must not stop it."""
    assert process.stdout is not None
    while await process.stdout.read(OUTPUT_BYTES):
        pass


def _tell(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Nothing once it is known to have ended."""
    if process.returncode is not None:
        return
    try:
        # ``process.send_signal`` asks for its status first: of one that is dead by now the loop, which waits for it,
        # would be told that there is none, and how it ended would be lost.
        os.kill(process.pid, number)
    except ProcessLookupError:
        pass


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
