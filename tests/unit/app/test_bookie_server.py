"""The composition of ``geminga bookie``, in this process: what a start refuses, and that it lets go of all it took."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geminga.app.bookie_commands import commands
from geminga.app.bookie_config import load_bookie_config
from geminga.app.bookie_server import BookieProcessServer, UnknownLedgers
from geminga.model.errors import ConfigurationError, DataDirectoryError, GemingaError


def open_descriptors() -> set[str]:
    """What this process has open, but for the descriptor of the look itself."""
    return {name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}


def server(data: Path, *overrides: str) -> BookieProcessServer:
    config = load_bookie_config(overrides=["bookiePort=0", "gemingaEventLoop=asyncio", *overrides])
    return BookieProcessServer(config, str(data), on_fatal=lambda part, error: pytest.fail(f"{part}: {error}"))


def refusal(data: Path, *overrides: str) -> GemingaError:
    """The error of a start, which left nothing open."""

    async def main() -> GemingaError:
        before = open_descriptors()
        with pytest.raises(GemingaError) as caught:
            await server(data, *overrides).start()
        assert open_descriptors() == before
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
            assert open_descriptors() == before

    asyncio.run(main())


def test_what_is_refused(tmp_path: Path) -> None:
    ledgers = f"journalDirectories={tmp_path / 'b' / 'ledgers'}"
    assert isinstance(refusal(tmp_path / "b", ledgers), ConfigurationError)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "geminga.json").write_text("{}")
    assert "data directory of a standalone" in str(refusal(tmp_path / "s"))
    assert "advertisedAddress=::1" in str(refusal(tmp_path / "b", "advertisedAddress=::1"))
    (tmp_path / "file").write_bytes(b"")
    assert isinstance(refusal(tmp_path / "file"), DataDirectoryError)
    assert "bookiePort: can not listen on no.such.host.invalid:0" in str(
        refusal(tmp_path / "b", "bindAddress=no.such.host.invalid")
    )


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
