"""The health check of the image."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from geminga.app.container.config_copies import image_of, remember
from geminga.app.container.health import ask


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """200 for /good, 404 for /status.html (no file is there, and it serves) and /gone, else 503."""
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
    status = {b"/good": b"200 OK", b"/status.html": b"404 No file", b"/gone": b"404 No file"}.get(path, b"503 Not now")
    writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
    writer.close()


def test_it_is_healthy_while_the_url_that_was_kept_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"PULSAR_HOME": str(tmp_path), "PULSAR_COPY_DIR": "copies"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    image = image_of(environment)

    async def asked() -> tuple[list[int], str]:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        codes = []
        async with server:
            for path in ("good", "bad", "status.html", "gone"):
                remember(image, "health", f"{url}/{path}")
                codes.append(await asyncio.to_thread(ask))
        return codes, url

    assert ask() == 1
    codes, url = asyncio.run(asked())
    assert codes == [0, 1, 0, 1]
    remember(image, "health", f"{url}/good")
    assert ask() == 1
    remember(image, "health", "")
    assert ask() == 0
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith("no server was started")
    assert errors[1] == f"{url}/bad: 503"
    assert errors[2] == f"{url}/gone: 404"
    assert "refused" in errors[3]
