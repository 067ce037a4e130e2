"""What is judged by Autobahn's suite: the echo on our WebSocket layer, and what the suite's reports are taken for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tools.interop.artifacts import ToolError
from tools.interop.autobahn import Outcome, find_python, outcomes, serve, specification, table_of
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


def test_texts_come_back_and_binary_messages_are_refused() -> None:
    async def ask(port: int) -> None:
        async with connect(f"ws://127.0.0.1:{port}") as socket:
            for text in ("", "é" * 40, "x" * 100_000):
                await socket.send(text)
                assert await asyncio.wait_for(socket.recv(), 60) == text
            await socket.send(b"binary")
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), 60)
            assert socket.close_code == 1003

    asyncio.run(serve(ask))


def test_a_request_that_is_no_websockets_is_refused() -> None:
    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    assert asyncio.run(serve(ask)).startswith(b"HTTP/1.1 4")


def _report(folder: Path, case: str, behavior: str, close: str = "OK", **told: object) -> dict[str, str]:
    name = f"case_{case}.json"
    (folder / name).write_text(json.dumps(told))
    return {"behavior": behavior, "behaviorClose": close, "reportfile": name}


def test_reports_are_taken_for_what_they_say(tmp_path: Path) -> None:
    binary = {"txFrameStats": {"2": 1, "8": 1}, "remoteCloseCode": 1003}
    cases = {
        "10.1.1": _report(tmp_path, "10.1.1", "NON-STRICT"),
        "1.1.1": _report(tmp_path, "1.1.1", "OK"),
        "1.2.1": _report(tmp_path, "1.2.1", "FAILED", "WRONG CODE", **binary),
        # It was told that there are no binary messages, and had sent none; and another way to refuse.
        "1.2.2": _report(tmp_path, "1.2.2", "FAILED", txFrameStats={"1": 1}, remoteCloseCode=1003),
        "1.2.3": _report(tmp_path, "1.2.3", "FAILED", txFrameStats={"2": 1}, remoteCloseCode=1002),
        "7.1.5": _report(tmp_path, "7.1.5", "OK", "WRONG CODE"),
    }
    (tmp_path / "index.json").write_text(json.dumps({"Geminga": cases}))
    found = outcomes(tmp_path)
    assert [one.case for one in found] == ["1.1.1", "1.2.1", "1.2.2", "1.2.3", "7.1.5", "10.1.1"]
    assert [one.case for one in found if not one.is_good] == ["1.2.2", "1.2.3", "7.1.5"]
    assert [one.case for one in found if one.is_refused] == ["1.2.1"]
    columns = [list(column.cells) for column in table_of(found).columns]
    assert columns == [["1.*", "7.*", "10.*"], ["1", "0", "0"], ["0", "0", "1"], ["1", "0", "0"], ["2", "1", "0"]]


def test_a_suite_that_reported_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"index\.json"):
        outcomes(tmp_path)


def test_cases_are_chosen_by_patterns(tmp_path: Path) -> None:
    assert specification(7, tmp_path, "1.*, 7.1.5")["cases"] == ["1.*", "7.1.5"]


def test_without_the_old_python_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHON27", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="PYTHON27"):
        find_python()


def test_an_outcome_that_is_permitted_is_good() -> None:
    assert Outcome("4.1.1", "NON-STRICT", "OK", is_refused=False).is_good
    assert not Outcome("4.1.1", "UNIMPLEMENTED", "OK", is_refused=False).is_good
