"""The composition of ``geminga bookie``, in this process: what a start refuses, and that it lets go of all it took."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geminga.app.commands.bookie_commands import commands
from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.servers.bookie_server import BookieProcessServer, UnknownLedgers
from geminga.app.servers.recovery_in_bookie import RecoveryInBookie
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.model.bookie_port import Availability
from geminga.model.errors import ConfigurationError, DataDirectoryError, GemingaError
from geminga.runtime import Runtime, real_runtime
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, READ_ONLY_PATH
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.bookkeeper.under_replication import REREPLICATION_LAYOUT_PATH
from support.house.real_runtimes import close_runtime
from support.worlds.ledgers import Appends


def open_descriptors() -> Counter[str]:
    """Files, pipes and polls that this process has open; sockets of clients that other tests left in its threads come
    and go, and those of bookies are counted by ``integration/test_dropped_connections.py``. What is
    gone meanwhile was another test's, too: nothing more may be there."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the look itself
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.startswith("socket:"):
                found[target] += 1
    return found


def server(data: Path, *overrides: str, cluster: MemoryMetadata | None = None) -> BookieProcessServer:
    async def open_metadata(runtime: Runtime) -> MemoryMetadataStore:
        return MemoryMetadataStore(runtime, cluster)

    config = load_bookie_config(overrides=["bookiePort=0", "gemingaEventLoop=asyncio", *overrides])
    return BookieProcessServer(
        config,
        str(data),
        on_fatal=lambda part, error: pytest.fail(f"{part}: {error}"),
        open_metadata=None if cluster is None else open_metadata,
    )


def refusal(data: Path, *overrides: str) -> GemingaError:
    """The error of a start, which left nothing open."""

    async def main() -> GemingaError:
        before = open_descriptors()
        with pytest.raises(GemingaError) as caught:
            await server(data, *overrides).start()
        assert not open_descriptors() - before
        return caught.value

    return asyncio.run(main())


def test_starts_and_stops_again_and_again(tmp_path: Path) -> None:
    async def main() -> None:
        before = open_descriptors()
        port = "0"
        for _ in range(2):
            one = server(tmp_path / "b", f"bookiePort={port}")
            address = await one.start()
            port = str(address.port)
            assert address.bookie_id == f"127.0.0.1:{port}"
            await one.stop()
            assert not open_descriptors() - before

    asyncio.run(main())


def test_what_is_refused(tmp_path: Path) -> None:
    ledgers = f"journalDirectories={tmp_path / 'b' / 'ledgers'}"
    assert isinstance(refusal(tmp_path / "b", ledgers), ConfigurationError)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "geminga.json").write_text('{"format": 1}')
    assert "data directory of a standalone" in str(refusal(tmp_path / "s"))
    assert "advertisedAddress=::1" in str(refusal(tmp_path / "b", "advertisedAddress=::1"))
    (tmp_path / "file").write_bytes(b"")
    assert isinstance(refusal(tmp_path / "file"), DataDirectoryError)
    assert "bookiePort: can not listen on no.such.host.invalid:0" in str(
        refusal(tmp_path / "b", "bindAddress=no.such.host.invalid", "gemingaAllowOpen=true")
    )


def test_bookies_of_a_cluster_are_found_and_strangers_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = MemoryMetadata()
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        store, pool = MemoryMetadataStore(runtime, cluster), RemoteBookiePool(runtime)
        bookies = [server(tmp_path / name, f"bookieId={name}", cluster=cluster) for name in ("b1", "b2")]
        for bookie in bookies:
            await bookie.start()
        registered = await RegisteredBookies.follow(store, pool)
        assert pool.available() == ["b1", "b2"]
        client = BookKeeper(runtime, store, pool)
        handle = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        assert await Appends(handle).append_and_wait(b"an entry") is None
        for bookie in bookies:
            await bookie.stop()
        assert await store.children(AVAILABLE_PATH) == ["readonly"]
        # Directories of another one, and of another cluster.
        for data, bookie_id, of, says in (
            ("b1", "b2", cluster, "journal belongs to bookie b1"),
            ("b3", "b2", cluster, "journal was emptied"),
            ("b1", "b1", MemoryMetadata(), "and the metadata store is that of cluster"),
        ):
            with pytest.raises(DataDirectoryError, match=says):
                await server(tmp_path / data, f"bookieId={bookie_id}", cluster=of).start()
        with pytest.raises(DataDirectoryError, match="start it with that cluster's metadata store"):
            await server(tmp_path / "b1", "bookieId=b1").start()
        # On other ports, which they tell.
        again = [server(tmp_path / name, f"bookieId={name}", cluster=cluster) for name in ("b1", "b2")]
        for bookie in again:
            await bookie.start()
        await registered.read()
        reader = await client.open_ledger(handle.ledger_id)
        assert await reader.read_entries(0, 0) == [b"an entry"]
        await registered.close()
        await pool.close()
        for bookie in again:
            await bookie.stop()
        await close_runtime(runtime)

    asyncio.run(main())


def test_bookies_with_auto_recovery_restore_what_one_of_them_had(tmp_path: Path) -> None:
    async def main() -> None:
        before = open_descriptors()
        cluster = MemoryMetadata()
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        store, pool = MemoryMetadataStore(runtime, cluster), RemoteBookiePool(runtime)
        bookies = {
            name: server(tmp_path / name, f"bookieId={name}", "autoRecoveryDaemonEnabled=true", cluster=cluster)
            for name in ("b1", "b2", "b3")
        }
        for bookie in bookies.values():
            await bookie.start()
        registered = await RegisteredBookies.follow(store, pool)
        client = BookKeeper(runtime, store, pool)
        handle = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        assert await Appends(handle).append_and_wait(b"an entry") is None
        await handle.close()
        named = (await LedgerStore(store).read(handle.ledger_id)).metadata.fragments[0].ensemble
        changed = asyncio.Event()
        unwatch = store.watch_node(ledger_path(handle.ledger_id), lambda _: changed.set())
        lost = named[0]
        await bookies.pop(lost).stop()
        async with asyncio.timeout(60):
            await changed.wait()
        unwatch()
        healed = (await LedgerStore(store).read(handle.ledger_id)).metadata.fragments[0].ensemble
        assert set(healed) == {"b1", "b2", "b3"} - {lost}
        await registered.close()
        await pool.close()
        for bookie in bookies.values():
            await bookie.stop()
        await store.close()
        await close_runtime(runtime)
        assert not open_descriptors() - before

    asyncio.run(main())


def test_auto_recovery_that_can_not_begin_is_closed_with_all_it_opened(tmp_path: Path) -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        store = MemoryMetadataStore(runtime, MemoryMetadata())
        await store.put(REREPLICATION_LAYOUT_PATH, b"of another kind", expected_version=None)
        config = load_bookie_config(overrides=["autoRecoveryDaemonEnabled=true"]).recovery
        assert config is not None
        before = open_descriptors()
        recovery = RecoveryInBookie(runtime, store, "b1", config, 5 << 20)
        with pytest.raises(GemingaError, match=REREPLICATION_LAYOUT_PATH):
            await recovery.start()
        await recovery.close()
        assert not open_descriptors() - before
        await store.close()
        await close_runtime(runtime)

    asyncio.run(main())


def test_bookie_whose_disk_is_full_is_registered_as_read_only(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = MemoryMetadata()
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        store, pool = MemoryMetadataStore(runtime, cluster), RemoteBookiePool(runtime)
        registered = await RegisteredBookies.follow(store, pool)
        came: asyncio.Future[tuple[str, Availability]] = asyncio.get_running_loop().create_future()
        pool.watch(lambda *heard: heard[1] is Availability.READ_ONLY and came.set_result(heard))
        # Whatever is used of this disk is too much.
        full = ("bookieId=b1", "diskUsageThreshold=0", "diskCheckInterval=20")
        bookie = server(tmp_path / "b", *full, cluster=cluster)
        await bookie.start()
        assert await asyncio.wait_for(came, 30) == ("b1", Availability.READ_ONLY)
        assert await store.children(AVAILABLE_PATH) == ["readonly"]
        assert await store.children(READ_ONLY_PATH) == ["b1"]
        assert pool.available() == []
        await registered.close()
        await pool.close()
        await bookie.stop()
        await close_runtime(runtime)

    asyncio.run(main())


def test_nobody_knows_the_ledgers() -> None:
    async def main() -> None:
        ledgers = UnknownLedgers()
        assert await ledgers.live_ledger_ids() is None
        assert await ledgers.next_ledger_id() is None

    asyncio.run(main())


def test_command_tells_its_options() -> None:
    shown = CliRunner().invoke(commands, ["--help"], terminal_width=200)
    assert shown.exit_code == 0
    assert all(option in shown.output for option in ("--data", "--port", "--address", "--set", "--json"))
