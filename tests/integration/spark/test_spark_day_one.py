"""docs/spark-day-one.md as it stands: its files, its commands, its crontab, a master, two workers, Spark Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.free_ports import free_ports
from tools.process_tree import children_of, wait_gone

import geminga.client.blocking
from geminga.client import MessageId
from support.house.source_tree import ROOT
from support.house.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

EXTRAS = ROOT / "build" / "spark-extras"
BLOCK = re.compile(r"^```(python|sh|crontab)\n(?:# (\w+\.\w+)\n)?(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST_ORDERS, CHANGE, ASK = 1, 2, 3
#: What a cron daemon gives; and what is no part of the page: where this machine keeps pandas, and one address.
CRON = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
HERE = {
    "PYTHONPATH": str(EXTRAS),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for JVMs that live for a minute
}
#: A start takes half a minute of CPU, and longer on a busy machine.
LIMIT_S = 900


class Page:
    """The files of the page in a directory, with this machine's addresses; and its commands in their order."""

    def __init__(self, directory: Path, service_url: str) -> None:
        self.directory = directory
        self.environment = {**CRON, **HERE, "HOME": str(directory)}
        master, connect, ui = free_ports(3)
        text = (ROOT / "docs" / "spark-day-one.md").read_text(encoding="utf-8")
        for theirs, ours in (
            ("/srv/day-one/venv/bin/python", sys.executable),
            (" venv/bin/python", f" {sys.executable}"),
            ("pulsar://10.0.0.2:6650", service_url),
            ("/srv/day-one/shop.zip", f"/srv/day-one/shop.zip:{EXTRAS}"),
            ("/srv/day-one", str(directory)),
            ("10.0.0.1:7077", f"127.0.0.1:{master}"),
            ("--port 7077", f"--port {master} --webui-port {ui}"),
            ("10.0.0.1:15002", f"127.0.0.1:{connect}"),
            ("binding.port=15002", f"binding.port={connect}"),
            ("10.0.0.1", "127.0.0.1"),
        ):
            assert theirs in text, theirs
            text = text.replace(theirs, ours)
        self.commands: list[str] = []
        for language, name, block in BLOCK.findall(text):
            if name:
                (directory / name).write_text(block)
            elif language == "crontab":
                self.cron_line = block.split(" ", 5)[5].strip()
            else:
                self.commands.append(block)

    def run(self, command: str) -> str:
        """What the shell's ``command`` prints; its errors fail the test."""
        done = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=LIMIT_S, env=self.environment
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def submit(self) -> str:
        """The log of one start by cron."""
        log = self.directory / "log"
        log.write_text("")
        done = subprocess.run(["/bin/sh", "-c", self.cron_line], timeout=LIMIT_S, env=self.environment)
        assert done.returncode == 0, log.read_text()[-6000:]
        return log.read_text()


def started(ended: ExitStack, page: Page, command: str, says: str) -> None:
    """A script of the page as a process that lives until the test is over; returns when it ``says`` so much."""
    log = page.directory / f"{command.replace(' ', '-')}.out"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["/bin/sh", *command.split()], stdout=output, stderr=output, env=page.environment, cwd=page.directory
        )
    ended.callback(process.wait, 60)
    ended.callback(process.terminate)
    try:
        until(lambda: says in log.read_text() or process.poll() is not None, says, limit_s=LIMIT_S)
        assert process.poll() is None, "it ended"
    except AssertionError as error:
        raise AssertionError(f"{command}: {log.read_text()[-4000:]}") from error


@pytest.fixture
def page(standalone, tmp_path) -> Iterator[Page]:
    """The page with its master and two workers."""
    if not EXTRAS.exists():
        pytest.fail(f"{EXTRAS} is missing: make spark-extras")
    page = Page(tmp_path, standalone.service_url)
    before = children_of([os.getpid()])
    with ExitStack() as ended:
        started(ended, page, "master.sh", "I have been elected leader")
        for number in (1, 2):
            started(ended, page, f"worker.sh {number}", "Successfully registered with master")
        yield page
    assert not wait_gone(children_of([os.getpid()]) - before, 30.0)


def read(client, topic: str) -> list[bytes]:
    with client.create_reader(topic, MessageId.earliest) as reader:
        found = []
        while reader.has_message_available():
            found.append(reader.read_next().data())
    return found


def test_day_one_goes_on_over_starts_changes_and_new_topics(page, standalone):
    with geminga.client.blocking.connect(standalone.service_url) as client:

        def totals() -> dict[str, list[tuple[int, int]]]:
            found: dict[str, list[tuple[int, int]]] = {}
            for row in map(json.loads, read(client, "totals")):
                found.setdefault(row["item"], []).append((row["cents"], row["orders"]))
            return found

        page.run(page.commands[FIRST_ORDERS])
        log = page.submit()
        assert totals() == {"tea": [(180, 2)], "cup": [(600, 1)]}
        assert re.findall(r"^batch (\d+) rows (\d+) lag", log, re.MULTILINE) == [("0", "4")], log[-4000:]
        assert read(client, "bad-orders") == [b'{"item": "tea", "cents": 2.5}']
        page.submit()  # nothing new
        assert totals() == {"tea": [(180, 2)], "cup": [(600, 1)]}

        page.run(page.commands[CHANGE])
        page.run(f"cd {page.directory} && {sys.executable} more_orders.py")
        page.submit()
        assert totals() == {"tea": [(180, 2), (1280, 3)], "cup": [(600, 1)]}

        client.subscribe("large-totals", "keep").close()
        with ExitStack() as ended:
            started(ended, page, "connect.sh", "Spark Connect server started at")
            for _ in range(2):  # the second start finds its batches written
                assert page.run(page.commands[ASK]).splitlines() == ["orders cup 1", "orders tea 3"]
                assert [json.loads(row)["cents"] for row in read(client, "large-totals")] == [1280]
