"""Stories of :mod:`tools.browser.stress`: what each promises, and lines for what did not hold."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import geminga.admin.blocking
from tools.browser import stress, world
from tools.browser.addresses import act_paths, page_of
from tools.browser.chrome import Watch, chromium, tab
from tools.browser.paint import NAMESPACE
from tools.standalone_process import StandaloneProcess

CONSUMERS = 1_000
VISITORS = 64
#: Bytes that memory may grow between half of the page loads and their end.
GROWTH_MAX = 8 << 20
CROWDED = f"persistent://{NAMESPACE}/topic-00000"


def a_crowd(process: StandaloneProcess, topics: int, loads: int) -> list[str]:
    """Thousands of topics, a thousand consumers: pages answer, memory stays, a rush is told to wait."""
    found = []
    paths = [
        page_of("/"),
        page_of("/topics", namespace=NAMESPACE),
        page_of("/topics", namespace=NAMESPACE, page="7"),
        page_of("/topics", namespace=NAMESPACE, q="99"),
        page_of("/topic", topic=CROWDED),
        page_of("/subscription", topic=CROWDED, subscription="crowd"),
        page_of("/messages", topic=CROWDED),
        page_of("/cluster"),
    ]
    with stress.Consumers(process.service_url, CONSUMERS, topics):
        codes, held = stress.load(process, paths, loads)
        shown = ", ".join(f"{size >> 20} MiB" for size in held)
        print(
            f"{loads} loads of {len(paths)} pages, {topics} topics, {CONSUMERS} consumers: {dict(codes)}; "
            f"memory after a tenth, half, all of them: {shown}"
        )
        left = len(json.loads(process.request("GET", f"/admin/v2/persistent/{NAMESPACE}")))
        if left != topics:
            found.append(f"{left} topics are left")
        if set(codes) != {200}:
            found.append(f"page loads: {dict(codes)}")
        if held[-1] - held[1] > GROWTH_MAX:
            found.append(f"memory grows: {shown}")
        for path in paths[:2]:
            codes = stress.all_at_once(process, path, VISITORS)
            print(f"{VISITORS} visitors of {path} at once: {dict(codes)}")
            if not set(codes) <= {200, 503}:
                found.append(f"visitors at once: {dict(codes)}")
    return found


def a_killed_broker(directory: Path) -> list[str]:
    """One of two broker processes dies while its topic's page is open: a sentence, then the page again."""
    found = []
    process = StandaloneProcess(directory / "two", log=directory / "two.log", arguments=["--brokers", "2"])
    topic = "persistent://public/default/kept"
    with process:
        with geminga.admin.blocking.connect(process.web_url) as admin:
            admin.topics.create(topic)
            admin.subscriptions.create(topic, "s", "earliest")
        owner = stress.owner_of(process, topic.removeprefix("persistent://"))
        other = stress.other_of(process, owner)
        watch = Watch(urlsplit(other).netloc)
        with chromium() as browser, tab(browser, watch) as shown:
            url = other + page_of("/topic", topic=topic)
            first = shown.goto(url)
            stress.kill_owner(process, owner)
            again = shown.goto(url)
            said = " ".join((shown.locator("main").text_content() or "").split())[:200]
            print(f"a killed broker: {first.status if first else 0}, then {again.status if again else 0}: {said}")
            for _ in range(60):
                again = shown.goto(url)
                if again is not None and again.status == 200:
                    break
                shown.wait_for_timeout(500)
            else:
                found.append("the topic's page did not come back within 30 s of its broker's death")
        found += watch.found
        process.stop()
    return found


def bare_posts_and_read_only(directory: Path) -> list[str]:
    """Without their question acts do nothing, nor do they under read-only."""
    found = []
    with StandaloneProcess(directory / "bare", log=directory / "bare.log") as process:
        _shop(process)
        before = state(process)
        found += stress.bare_posts(process.web_url, act_paths(), {})
        found += stress.bare_posts(process.web_url, act_paths(), {"Origin": "http://elsewhere.test"})
        found += same("bare POSTs", before, state(process))
    settings = {"gemingaConsole": "read-only"}
    with StandaloneProcess(directory / "kept", log=directory / "kept.log", settings=settings) as process:
        _shop(process)
        before = state(process)
        found += stress.bare_posts(process.web_url, act_paths(), {"Origin": process.web_url})
        found += same("read-only", before, state(process))
    return found


def _shop(process: StandaloneProcess) -> None:
    import asyncio

    asyncio.run(world.fill(process.service_url, process.web_url, ""))


def same(what: str, before: dict[str, object], after: dict[str, object]) -> list[str]:
    """A line for each thing that changed."""
    return [
        f"{what} changed {key}: {before[key]} to {after.get(key)}" for key in before if before[key] != after.get(key)
    ]


def state(process: StandaloneProcess) -> dict[str, object]:
    """What acts could have changed."""
    found: dict[str, object] = {}

    def get(path: str) -> object:
        try:
            return json.loads(process.request("GET", path))
        except urllib.error.HTTPError as error:
            return error.code

    for namespace in ("shop/orders", "shop/catalogue", "iot/telemetry"):
        found[f"topics of {namespace}"] = get(f"/admin/v2/persistent/{namespace}")
        found[f"policies of {namespace}"] = get(f"/admin/v2/namespaces/{namespace}")
    stats = json.loads(process.request("GET", f"/admin/v2/persistent/{world.ORDERS}/internalStats"))
    for name, cursor in stats["cursors"].items():
        found[f"cursor {name}"] = cursor["markDeletePosition"]
    found["entries"] = stats["entriesAddedCounter"]
    found["partitions"] = get(f"/admin/v2/persistent/{world.PAYMENTS}/partitions")
    return found
