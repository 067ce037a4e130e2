"""The processes that a standalone starts, here short programs: told what they are, started again, ended in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import uvloop

from geminga.app.configuration.config import config_from
from geminga.app.configuration.config_sources import from_mapping
from geminga.app.configuration.core.log_options import LogOptions
from geminga.app.servers.broker_children import COMMAND, BrokerChildren, _first_line, _tell
from geminga.app.servers.core import broker_children as core_children
from geminga.app.servers.core.broker_children import ChildPlan
from geminga.app.servers.embedded import Standalone
from geminga.app.servers.listeners import Addresses
from geminga.app.servers.shared_storage import SharedStorageServer
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import next_turn, wait_ms

#: Tells where it serves, by its number and its life, and ends with its input; writes down what it was told.
SERVES = """
import json, os, signal, sys
plan = json.loads(sys.stdin.readline())
with open(os.path.join(plan["directory"], plan["name"]), "w") as told:
    json.dump(plan, told)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
number = plan["number"]
port = plan["broker_port"] or 1000 + number
urls = {"brokerServiceUrl": f"pulsar://h:{port}", "webServiceUrl": f"http://h:{2000 + number}"}
print(json.dumps({**urls, "pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


class World:
    """Children, and what they and their owner were told."""

    def __init__(self, directory: Path, program: str, count: int = 2) -> None:
        self.directory = directory
        self.ended: list[str] = []
        self.heard = asyncio.Event()
        command = (sys.executable, "-c", program)
        #: Those of whom nothing is heard.
        self.silent: set[str] = set()
        self.asked = 0
        self.children = BrokerChildren(
            [(0, 0)] * count, self.plan, self.has_ended, self.is_heard, command=command, look_s=0.01
        )

    def is_heard(self, name: str) -> bool:
        self.asked += 1
        return name not in self.silent

    def plan(self, number: int, name: str, broker_port: int, web_port: int) -> ChildPlan:
        return ChildPlan(number, name, str(self.directory), "t", LogOptions(), broker_port, web_port, 30_000, ())

    async def has_ended(self, name: str) -> None:
        self.ended.append(name)
        self.heard.set()

    def told(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.directory / name).read_text())
        return found

    async def until(self, condition) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await wait_ms(10)


def test_all_serve_before_the_start_is_done_and_all_end_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, SERVES)
        assert await world.children.start() == Addresses("pulsar://h:1000", "http://h:2000", 1000, 2000)
        assert len(world.children.pids()) == 2
        os.kill(world.children.pids()[1], signal.SIGSTOP)
        await world.children.close()
        assert sorted(world.ended) == ["broker-0.1", "broker-1.1"]
        assert world.children.pids() == []

    asyncio.run(main())


def test_what_a_program_prints_before_it_serves_is_passed_over(tmp_path: Path) -> None:
    """Something that is loaded with it may print, once; nobody read on, and the start never came to its end."""

    async def main() -> None:
        world = World(tmp_path, f"print('a library says hello', flush=True)\nprint('[1]', flush=True)\n{SERVES}", 1)
        async with asyncio.timeout(20):
            await world.children.start()
        await world.children.close()
        assert world.ended == ["broker-0.1"]

    asyncio.run(main())


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_one_that_was_killed_before_it_is_told_what_it_is_serves_nowhere(tmp_path: Path, loop) -> None:
    """And takes nobody along: what uvloop raises for a pipe that it closed is no OSError."""

    async def main() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe)
        process.kill()
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        await process.stdin.wait_closed()
        assert await _first_line(process, World(tmp_path, SERVES).plan(0, "broker-0.1", 0, 0)) is None

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def test_how_one_ended_is_known_though_it_is_told_something_once_it_is_dead() -> None:
    """Whoever asks for the status of a process that is dead takes it from the loop, which waits for it."""

    async def main() -> None:
        for _ in range(20):
            process = await asyncio.create_subprocess_exec("sleep", "1000")
            _tell(process, signal.SIGKILL)
            while process.returncode is None:
                _tell(process, signal.SIGCONT)
                await next_turn()
            assert process.returncode == -signal.SIGKILL
            _tell(process, signal.SIGCONT)

    asyncio.run(main())


def test_one_that_ends_is_started_again_at_the_ports_it_had(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = World(tmp_path, SERVES)
        await world.children.start()
        os.kill(world.children.pids()[0], signal.SIGKILL)
        await world.until((tmp_path / "broker-0.2").exists)
        await world.until(lambda: "serves again" in caplog.text)
        assert world.ended == ["broker-0.1"]
        assert (world.told("broker-0.1")["broker_port"], world.told("broker-0.2")["broker_port"]) == (0, 1000)
        await world.children.close()

    asyncio.run(main())
    assert "was ended by SIGKILL: another is started in 0.5 s" in caplog.text


def test_one_that_lives_and_hangs_is_told_of_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its bundles go to others, and nobody answered at its ports, which are the standalone's."""

    async def main() -> None:
        world = World(tmp_path, SERVES)
        await world.children.start()
        hung, well = world.children.pids()
        await world.until(lambda: world.asked > 4)
        os.kill(hung, signal.SIGSTOP)
        world.silent.add("broker-0.1")
        await world.until(lambda: "serves again" in caplog.text)
        assert world.ended == ["broker-0.1"]
        assert world.told("broker-0.2")["broker_port"] == 1000
        assert world.children.pids()[1] == well
        await world.children.close()

    asyncio.run(main())
    assert "lives and is not heard of: it is ended unless it is within 0.6 s" in caplog.text
    assert "was ended by SIGKILL: another is started in 0.5 s" in caplog.text


def test_one_that_does_not_hear_that_it_is_to_end_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = World(
            tmp_path,
            SERVES.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN").replace("read()", "read(0)")
            + "while True: signal.pause()",
        )
        await world.children.start()
        await world.until(lambda: world.asked > 4)
        closing = asyncio.ensure_future(world.children.close())
        await next_turn()
        world.silent |= {"broker-0.1", "broker-1.1"}
        async with asyncio.timeout(20):
            await closing
        assert sorted(world.ended) == ["broker-0.1", "broker-1.1"]

    asyncio.run(main())
    assert "hangs: it is ended" in caplog.text
    # Each that ends leaves before: an ordinary stop told of an error, if it was looked at that moment.
    assert "is not heard of" not in caplog.text


@pytest.mark.parametrize("is_stopped", [False, True])
def test_one_that_hangs_before_it_was_ever_heard_of_is_not_waited_for(
    tmp_path: Path, monkeypatch, is_stopped: bool
) -> None:
    looks = {"STARTING_LOOKS_MAX": 1 << 30 if is_stopped else 20, "SILENT_LOOKS_MAX": 20 if is_stopped else 1 << 30}
    for name, count in looks.items():
        monkeypatch.setattr(core_children, name, count)
    hangs = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"

    async def main() -> None:
        world = World(tmp_path, hangs)
        world.silent |= {"broker-0.1", "broker-1.1"}
        starting = asyncio.ensure_future(world.children.start())
        async with asyncio.timeout(60):
            if is_stopped:
                await world.until(lambda: world.asked > 4)
                await world.children.close()
                await asyncio.wait({starting})
            else:
                with pytest.raises(UnavailableError, match="was ended by SIGKILL before it served"):
                    await starting
                await world.children.close()
        assert sorted(world.ended) == ["broker-0.1", "broker-1.1"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("program", "story"),
    [
        ("import sys; sys.exit(7)", "ended with 7 before it served"),
        ("print('what is this?')", "ended with 0 before it served"),
        ("print('{}')", "ended with 0 before it served"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL before it served"),
    ],
)
def test_one_that_ends_before_it_serves_ends_the_start(tmp_path: Path, program: str, story: str) -> None:
    async def main() -> None:
        world = World(tmp_path, program)
        with pytest.raises(UnavailableError, match=story):
            await world.children.start()
        await world.children.close()
        assert sorted(world.ended) == ["broker-0.1", "broker-1.1"]

    asyncio.run(main())


def test_program_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, SERVES)
        world.children._command = (str(tmp_path / "nothing"),)
        with pytest.raises(UnavailableError, match=r"can not be started \(No such file"):
            await world.children.start()
        await world.children.close()

    asyncio.run(main())


def test_stop_while_one_is_waited_for_does_not_wait(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path, SERVES, count=1)
        await world.children.start()
        os.kill(world.children.pids()[0], signal.SIGKILL)
        await world.until(lambda: world.ended)
        async with asyncio.timeout(5):
            await world.children.close()

    asyncio.run(main())


def test_embedded_standalone_and_shared_ports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="gemingaBrokers=2: broker processes are started by geminga"):
        Standalone(tmp_path, {"gemingaBrokers": 2})
    entries = from_mapping({"gemingaBrokers": 2, "bindAddresses": "a:pulsar://127.0.0.1:1"}, "test")
    with pytest.raises(ConfigurationError, match="bindAddresses=a:pulsar"):
        SharedStorageServer(
            config_from(entries), entries, str(tmp_path), log=LogOptions(), on_fatal=lambda *_: None, pid=1
        )


def test_process_that_is_started_by_hand_says_who_starts_it() -> None:
    async def main() -> tuple[int | None, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "geminga.app.servers.broker_child",
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        return process.returncode, said

    code, said = asyncio.run(main())
    assert code == 1
    assert b"a broker process is started by geminga standalone --brokers" in said
