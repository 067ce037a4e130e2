"""A bookie over HTTP: metrics by BookKeeper's names, and its state, which nobody can change there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from geminga.app.configuration.bookie_config import HttpListener, load_bookie_config
from geminga.app.servers.bookie_http import BookieHttp
from geminga.bookie import BookieConfig
from geminga.bookie.spread import SpreadBookie
from geminga.model.errors import ConfigurationError
from geminga.runtime import MemoryDisk, Runtime, real_runtime
from support.house.exposition import Sample, samples
from support.worlds.bookies import Calls, Listed, entries_of


async def opened(*pairs: tuple[str, str], disk_usage_threshold: float = 0.95) -> tuple[SpreadBookie, Runtime]:
    real = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
    await real.disk.close()
    runtime = Runtime(real.clock, real.rng, MemoryDisk(), real.network, real.threads, real.on_fatal)
    config = BookieConfig(disk_usage_threshold=disk_usage_threshold)
    return await SpreadBookie.open(runtime, pairs, config, ledgers=Listed()), runtime


async def scrape(http: BookieHttp) -> list[Sample]:
    status, text, media_type = await http.answer("GET", "/metrics")
    assert status == 200
    assert media_type == "text/plain; version=0.0.4; charset=utf-8"
    return samples(text)


def value(found: list[Sample], name: str, **labels: str) -> float:
    (one,) = [sample.value for sample in found if sample.name == name and sample.labels == labels]
    return one


def test_metrics_follow_what_is_stored_and_read() -> None:
    async def main() -> None:
        bookie, runtime = await opened(("/j", "/l"))
        http = BookieHttp(bookie, runtime.clock.monotonic, (lambda: {"more": 7},))
        calls = Calls(bookie)
        assert await calls.add(3, 0, entries_of(3, 0, 50)) is None
        assert await calls.read(3, *range(50)) == entries_of(3, 0, 50)
        found = await scrape(http)
        assert value(found, "bookie_SERVER_STATUS") == 1
        assert value(found, "bookie_ADD_ENTRY_count") == 50
        assert value(found, "bookkeeper_server_ADD_ENTRY_count", success="true") == 50
        assert value(found, "bookkeeper_server_READ_ENTRY_count", success="true") == 50
        assert value(found, "bookie_journal_JOURNAL_SYNC_count", success="true") >= 1
        assert value(found, "bookie_journal_JOURNAL_QUEUE_SIZE") == 0
        assert value(found, "bookkeeper_server_ADD_ENTRY_BLOCKED") == 0
        assert value(found, "bookie_ledgers_count") == 1
        assert value(found, "bookie_write_cache_count") == 50
        assert value(found, "bookie_write_cache_size") >= sum(map(len, entries_of(3, 0, 50)))
        assert value(found, "bookie_ledger_num_dirs") == value(found, "bookie_ledger_writable_dirs") == 1
        assert value(found, "process_open_fds") > 0
        assert value(found, "more") == 7
        for part in bookie.parts:
            await part.flush()
            await part.probe_disk()
        found = await scrape(http)
        assert value(found, "bookie_write_cache_count") == 0
        assert value(found, "bookie_entries_count") == 50
        assert value(found, "bookie_write_cache_hits") == 50
        assert value(found, "bookie_write_cache_misses") == value(found, "bookie_read_cache_misses") == 0
        assert value(found, "bookie_read_cache_size") == 0
        for _ in range(2):  # from the disk, and from the chunk that was read for it
            assert await calls.read(3, 7, 8, 999) is not None
        assert await calls.add(3, 50, entries_of(3, 50, 5)) is None
        found = await scrape(http)
        assert value(found, "bookie_entries_count") == 55
        assert value(found, "bookie_write_cache_misses") == 6
        assert value(found, "bookie_read_cache_misses") == value(found, "bookie_read_cache_hits") == 2
        assert value(found, "bookie_read_cache_size") > 0
        assert value(found, "bookie_read_cache_count") >= 2
        assert value(found, "bookkeeper_server_READ_ENTRY_REQUEST_count", success="true") == 56
        assert value(found, "bookkeeper_server_READ_ENTRY_IN_PROGRESS") == 0
        assert value(found, "bookkeeper_server_ADD_ENTRY_IN_PROGRESS") == 0
        assert 0 <= value(found, "bookie_ledger_dir__l_usage") <= 100
        await bookie.close()
        assert value(await scrape(http), "bookie_SERVER_STATUS") == 0

    asyncio.run(main())


def test_pairs_of_directories_are_told_apart() -> None:
    async def main() -> None:
        bookie, runtime = await opened(("/j1", "/l1"), ("/j2", "/l2"))
        http = BookieHttp(bookie, runtime.clock.monotonic)
        assert await Calls(bookie).add(3, 0, entries_of(3, 0, 5)) is None
        found = await scrape(http)
        assert value(found, "bookie_SERVER_STATUS") == 1
        assert value(found, "bookie_ADD_ENTRY_count", pair="1") == 0
        assert value(found, "bookie_ADD_ENTRY_count", pair="2") == 5
        assert value(found, "bookie_ledger_num_dirs") == 2
        await bookie.close()

    asyncio.run(main())


def test_state_follows_the_bookie() -> None:
    async def main() -> None:
        bookie, runtime = await opened(("/j", "/l"), disk_usage_threshold=0)  # full at the first look
        http = BookieHttp(bookie, runtime.clock.monotonic)

        async def state() -> dict[str, bool]:
            status, text, _ = await http.answer("GET", "/api/v1/bookie/state")
            assert status == 200
            return json.loads(text)

        well = {"running": True, "readOnly": False, "shuttingDown": False, "availableForHighPriorityWrites": True}
        assert await state() == well
        assert await http.answer("GET", "/heartbeat") == (200, "OK\n", "text/plain; charset=utf-8")
        assert (await http.answer("HEAD", "/api/v1/bookie/is_ready/"))[0] == 200
        info = json.loads((await http.answer("GET", "/api/v1/bookie/info"))[1])
        assert 0 < info["freeSpace"] <= info["totalSpace"]
        await bookie.parts[0].probe_disk()
        assert await state() == {**well, "readOnly": True, "availableForHighPriorityWrites": False}
        assert (await http.answer("GET", "/api/v1/bookie/is_ready"))[0] == 200
        await bookie.close()
        assert (await http.answer("GET", "/api/v1/bookie/is_ready"))[0] == 503
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await http({"method": "GET", "path": "/api/v1/bookie/is_ready"}, None, send)  # type: ignore[arg-type]
        assert (b"retry-after", b"5") in sent[0]["headers"]
        assert (await state())["running"] is False

    asyncio.run(main())


def test_nothing_else_is_there_and_nothing_can_be_changed() -> None:
    async def main() -> None:
        bookie, runtime = await opened(("/j", "/l"))
        http = BookieHttp(bookie, runtime.clock.monotonic)
        for path in ("/", "", "/api/v1/bookie/gc", "/api/v1/ledger/delete", "/metrics/x", "/" + "x" * 100_000):
            status, text, _ = await http.answer("GET", path)
            assert status == 404
            assert "it has /metrics, /heartbeat" in text
            assert len(text) < 500
        for method in ("PUT", "POST", "DELETE"):
            status, text, _ = await http.answer(method, "/api/v1/bookie/state")
            assert (status, "expected GET" in text) == (405, True)
        await bookie.close()

    asyncio.run(main())


PROVIDER = "statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        ([], None),
        (["httpServerEnabled=true"], HttpListener("127.0.0.1", 8080, "httpServerPort")),
        (
            ["httpServerEnabled=true", "httpServerPort=0", "httpServerHost=::1", PROVIDER],
            HttpListener("::1", 0, "httpServerPort"),
        ),
        ([PROVIDER], HttpListener("127.0.0.1", 8000, "prometheusStatsHttpPort")),
        ([PROVIDER, "prometheusStatsHttpEnable=false"], None),
        (
            [PROVIDER, "prometheusStatsHttpPort=9", "prometheusStatsHttpAddress=0.0.0.0"],
            HttpListener("0.0.0.0", 9, "prometheusStatsHttpPort"),
        ),
        (["statsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider"], None),
    ],
)
def test_where_it_answers(assignments: list[str], expected: HttpListener | None) -> None:
    config = load_bookie_config(overrides=assignments)
    assert config.http() == expected
    assert config.warnings == ()


def test_bad_values_and_other_providers_are_told() -> None:
    (warning,) = load_bookie_config(overrides=["statsProviderClass=a.b.CodahaleMetricsProvider"]).warnings
    assert warning.startswith("statsProviderClass=a.b.CodahaleMetricsProvider (--set) has no effect: ")
    for text in ("httpServerPort=70000", "httpServerEnabled=perhaps", "prometheusStatsHttpPort=x"):
        with pytest.raises(ConfigurationError, match=text.partition("=")[0]):
            load_bookie_config(overrides=[text])
