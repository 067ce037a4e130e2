"""Backups asked for over the socket of the storage: refusals come as they were said, silence and nonsense end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from geminga.app.storage import backup_socket
from geminga.app.storage.backup_socket import SharedBackups, serve_backups
from geminga.model.errors import ConflictError, PreconditionFailedError, UnavailableError
from geminga.runtime import Runtime, real_runtime
from support.house.real_runtimes import close_runtime


def fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"fatal in {part}: {error!r}")


class KeptBackups:
    """Backups of nothing: the directory says what is said of them."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str, bool, int]] = []

    async def start(self, directory: str, request: str, *, whole: bool, rate_limit: int = 0) -> None:
        if directory == "/busy":
            raise ConflictError("a backup is being made in /other")
        if not request:
            raise PreconditionFailedError("request '': expected request- and 32 hex digits")
        self.started.append((directory, request, whole, rate_limit))

    async def state(self) -> Mapping[str, str | int]:
        return {"state": "running" if self.started else "none", "filesCopied": len(self.started)}


def on_socket(tmp_path: Path, work: Callable[[Runtime, str, KeptBackups], Awaitable[None]]) -> None:
    async def main() -> None:
        runtime, path, kept = real_runtime(fatal), str(tmp_path / "backup.socket"), KeptBackups()
        listener = await serve_backups(runtime, path, lambda: kept)
        await work(runtime, path, kept)
        await listener.close()
        with pytest.raises(UnavailableError, match=r"backup\.socket: the storage does not answer"):
            await SharedBackups(runtime, path).state()
        await close_runtime(runtime)

    asyncio.run(main())


def test_questions_and_refusals_go_through_as_they_are(tmp_path: Path) -> None:
    async def work(runtime: Runtime, path: str, kept: KeptBackups) -> None:
        asking = SharedBackups(runtime, path)
        assert await asking.state() == {"state": "none", "filesCopied": 0}
        with pytest.raises(ConflictError, match="a backup is being made in /other"):
            await asking.start("/busy", "request-1", whole=False)
        with pytest.raises(PreconditionFailedError, match="expected request- and 32 hex digits"):
            await asking.start("/here", "", whole=False)
        await asking.start("/here", "request-1", whole=True, rate_limit=4096)
        await asking.start("/here", "request-2", whole=False)
        assert kept.started == [("/here", "request-1", True, 4096), ("/here", "request-2", False, 0)]
        assert await asking.state() == {"state": "running", "filesCopied": 2}

    on_socket(tmp_path, work)


def test_silence_nonsense_and_a_line_without_end_are_ended(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backup_socket, "QUESTION_S", 0.02)

    async def work(runtime: Runtime, path: str, kept: KeptBackups) -> None:
        async def told(data: bytes) -> bytes:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(data)
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        assert await told(b"") == b""
        assert await told(b'{"call": "sta') == b""
        assert await told(b"x" * (backup_socket.LINE_BYTES_MAX + 1)) == b""
        for nonsense in (b"nonsense\n", b"[]\n", b'{"call": "start"}\n', b'{"call": "delete"}\n'):
            assert b'{"refused": "precondition"' in await told(nonsense)
        assert kept.started == []

    on_socket(tmp_path, work)


def test_an_answer_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.close()

    async def work(runtime: Runtime, path: str, kept: KeptBackups) -> None:
        listener = await runtime.network.listen_local(Silent, f"{path}.2")
        with pytest.raises(UnavailableError, match="closed without an answer"):
            await SharedBackups(runtime, f"{path}.2").state()
        await listener.close()

    on_socket(tmp_path, work)
