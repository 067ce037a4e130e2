"""What the console bears: thousands of topics and consumers, a broker that dies, a role that only reads, bare POSTs."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import geminga.client
from tools.browser.paint import NAMESPACE
from tools.browser.world import Background
from tools.standalone_process import StandaloneProcess


class Consumers(Background):
    """Many consumers of topics of :data:`tools.browser.paint.NAMESPACE`."""

    def __init__(self, service_url: str, count: int, topics: int) -> None:
        super().__init__(service_url, patience_s=300)
        self._count, self._topics = count, topics

    async def _run(self) -> None:
        async with geminga.client.connect(self._service_url) as client:
            numbers = iter(range(self._count))

            async def attach() -> None:
                for number in numbers:
                    # A tenth of them on one topic, which has a page with all of them.
                    place = 0 if number % 10 == 0 else number % self._topics
                    await client.subscribe(
                        f"{NAMESPACE}/topic-{place:05d}",
                        "crowd",
                        consumer_type=geminga.client.ConsumerType.Shared,
                        receiver_queue_size=1,
                    )

            async with asyncio.TaskGroup() as group:
                for _ in range(32):
                    group.create_task(attach())
            self._ready.set()
            await asyncio.to_thread(self._over.wait)


def load(process: StandaloneProcess, paths: Sequence[str], loads: int) -> tuple[Counter[int], list[int]]:
    """Ask for the pages in turn on one kept connection: the answers' codes, and memory before, half way and behind."""
    host = urlsplit(process.web_url).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    codes: Counter[int] = Counter()
    held = []
    for number in range(loads):
        if number in (loads // 10, loads // 2):
            held.append(process.rss_bytes())
        connection.request("GET", paths[number % len(paths)])
        answer = connection.getresponse()
        answer.read()
        codes[answer.status] += 1
    connection.close()
    held.append(process.rss_bytes())
    return codes, held


def all_at_once(process: StandaloneProcess, path: str, visitors: int) -> Counter[int]:
    """The codes that many visitors get who ask for one page at the same time."""
    codes: Counter[int] = Counter()
    lock = threading.Lock()
    start = threading.Barrier(visitors)

    def visit() -> None:
        connection = http.client.HTTPConnection(urlsplit(process.web_url).netloc, timeout=60)
        connection.connect()
        start.wait()
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        with lock:
            codes[status] += 1

    threads = [threading.Thread(target=visit) for _ in range(visitors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


def bare_posts(web_url: str, paths: Sequence[str], headers: dict[str, str]) -> list[str]:
    """POST to each act without what its question gave: what was not refused, a line each."""
    found = []
    for path in paths:
        for body in ({}, {"token": "guessed", "really": "yes", "count": "1000000"}):
            request = urllib.request.Request(web_url + path, data=urlencode(body).encode(), method="POST")
            request.add_header("Content-Type", "application/x-www-form-urlencoded")
            for name, value in headers.items():
                request.add_header(name, value)
            try:
                with _OPENER.open(request, timeout=30) as answer:
                    found.append(f"POST {path} {body}: {answer.status}")
            except urllib.error.HTTPError as error:
                if error.code not in (400, 401, 403, 404, 409, 412, 422):
                    found.append(f"POST {path} {body}: {error.code}")
    return found


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirections are answers here."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


def children_of(pid: int) -> list[int]:
    """Processes below it, oldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return sorted(found)


def listening(pid: int) -> set[int]:
    """TCP ports that a process listens on."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            matched = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        except FileNotFoundError:
            continue
        if matched:
            sockets.add(matched[1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def owner_of(process: StandaloneProcess, topic: str) -> str:
    """``http://host:port`` of the broker process that serves a topic."""
    found = json.loads(process.request("GET", f"/lookup/v2/topic/persistent/{topic}"))
    return str(found["httpUrl"])


def other_of(process: StandaloneProcess, owner: str) -> str:
    """The address of the broker process that is not ``owner``."""
    brokers = [f"http://{one}" for one in json.loads(process.request("GET", "/admin/v2/brokers"))]
    (other,) = [one for one in brokers if one != owner]
    return other


def kill_owner(process: StandaloneProcess, owner: str) -> None:
    """kill -9 the broker process at ``owner``."""
    port = urlsplit(owner).port
    (pid,) = [pid for pid in children_of(process.pid) if port in listening(pid)]
    os.kill(pid, signal.SIGKILL)
