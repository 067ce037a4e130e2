"""``geminga autorecovery`` beside bookies of a cluster in a real ZooKeeper: one is killed, its copies are made anew."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.zookeeper_server import ZooKeeperServer

from geminga.app.servers.autorecovery_process import connected, load_autorecovery_config
from geminga.replication.core.fragments import bookies_of
from geminga.runtime import wait_ms
from support.processes.bookie_process import BookieProcess
from support.worlds.ledgers import Appends, payloads
from support.worlds.metadata_stores import zookeeper_address

pytestmark = pytest.mark.integration

SETTINGS = {"zkTimeout": 2000, "openLedgerRereplicationGracePeriod": 500}
OPTIONS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
TIMEOUT_S = 90


def autorecovery(metadata: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "geminga", "autorecovery", *words, "--metadata", metadata, *OPTIONS, "--json"]


@pytest.fixture
def metadata(zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> str:
    return str(zookeeper_address(zookeeper, request.node.name))


@pytest.fixture
def bookies(tmp_path: Path, metadata: str) -> Iterator[dict[str, BookieProcess]]:
    found: dict[str, BookieProcess] = {}
    for name in ("b0", "b1", "b2", "b3"):
        options = ["--metadata", metadata, "--set", f"bookieId={name}", "--set", "zkTimeout=2000"]
        found[name] = BookieProcess(tmp_path / name, *options)
        found[name].start()
    yield found
    for one in found.values():
        if one.is_running:
            one.kill()


def test_copies_of_a_killed_bookie_are_made_anew_and_it_can_be_decommissioned(
    metadata: str, bookies: dict[str, BookieProcess], tmp_path: Path
) -> None:
    overrides = [f"metadataServiceUri={metadata}", *(f"{key}={value}" for key, value in SETTINGS.items())]
    config = load_autorecovery_config((), {}, overrides)
    assert config.warnings == ()
    with (tmp_path / "autorecovery.log").open("w") as log:
        words = ["--set", "httpServerEnabled=true", "--set", "httpServerPort=0"]
        process = subprocess.Popen(autorecovery(metadata, *words), stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        assert ready["pid"] == process.pid
        asyncio.run(kill_and_wait(config, bookies))
        with urllib.request.urlopen(f"http://127.0.0.1:{ready['httpPort']}/metrics", timeout=20) as page:
            copied = re.search(r"^replication_worker_NUM_ENTRIES_WRITTEN (\d+)", page.read().decode(), re.MULTILINE)
        assert copied is not None
        assert int(copied[1]) > 0
        refused = subprocess.run(
            autorecovery(metadata, "decommission", "b2"), capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 1
        assert "bookie b2 is registered: stop it first" in refused.stderr
        done = subprocess.run(autorecovery(metadata, "decommission", "b1"), capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout) == {"bookieId": "b1", "ledgersMoved": 0}, done.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0


async def kill_and_wait(config: Any, bookies: dict[str, BookieProcess]) -> None:
    async with asyncio.timeout(TIMEOUT_S), connected(config) as cluster:
        client = cluster.bookkeeper
        handles = []
        for number in range(6):
            handle = await client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
            assert await Appends(handle).append_and_wait(*payloads(0, 40)) is None
            if number % 3:
                await handle.close()
            handles.append(handle)
        bookies["b1"].kill()
        while True:
            metadata = [(await client.read_ledger(handle.ledger_id)).metadata for handle in handles]
            if not any("b1" in bookies_of(one) for one in metadata):
                break
            await wait_ms(200)
        for handle in handles:
            reader = await client.open_ledger(handle.ledger_id)
            assert list(await reader.read_entries(0, 39)) == payloads(0, 40)


def test_without_a_metadata_store_it_does_not_start() -> None:
    words = [sys.executable, "-m", "geminga", "autorecovery"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert ended.returncode == 1
    assert "auto-recovery needs the cluster's metadata store: expected --metadata zk:host:port" in ended.stderr
