"""What ``geminga bookie format|sanity|list-ledgers|read-ledger`` tell of a stopped bookie, and what they refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geminga.app.commands.bookie_commands import commands
from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.servers.bookie_server import BookieProcessServer
from geminga.app.storage import stopped_bookie
from geminga.app.storage.stopped_bookie import FoundEntry, StoppedBookie, StoppedDirectories
from geminga.bookkeeper.remote import RemoteBookie
from geminga.model.errors import DataDirectoryError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime
from support.worlds.bookies import Calls, entries_of


def filled(data: Path, *, first: int = 0, also: tuple[str, ...] = ()) -> None:
    """A bookie that stored ledger 3 (five entries from ``first``) and 4 (fenced, entries 7 and 9), and was stopped."""

    async def main() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        config = load_bookie_config(overrides=["bookiePort=0", "bookieId=b", "gemingaEventLoop=asyncio", *also])
        server = BookieProcessServer(config, str(data), on_fatal=lambda part, error: pytest.fail(f"{part}: {error}"))
        address = await server.start()
        with pytest.raises(DataDirectoryError, match="in use by a bookie"):
            StoppedBookie(address.directories)
        remote = RemoteBookie(runtime, "b", "127.0.0.1", address.port)
        calls = Calls(remote)
        assert await calls.add(3, first, entries_of(3, first, 5)) is None
        four = entries_of(4, 0, 10)
        assert set((await calls.add_each(4, [7, 9], [four[7], four[9]], recovery=True)).values()) == {None}
        assert await calls.fence(4) is None
        await remote.close()
        await server.stop()
        await close_runtime(runtime)

    asyncio.run(main())


def run(*arguments: str, data: Path, code: int = 0) -> Any:
    ended = CliRunner().invoke(commands, [arguments[0], "--data", str(data), "--json", *arguments[1:]])
    if code < 0:
        assert isinstance(ended.exception, DataDirectoryError)
        return str(ended.exception)
    assert ended.exit_code == code, ended.output
    return json.loads(ended.output)


def test_ledgers_and_entries(tmp_path: Path) -> None:
    data = tmp_path / "b"
    filled(data)
    filled(data, first=5)  # some are in an entry log by now
    sizes = [len(entry) for entry in entries_of(3, 0, 10)]
    three, four = run("list-ledgers", data=data)
    assert three == {
        "ledgerId": 3,
        "entries": 10,
        "firstEntryId": 0,
        "lastEntryId": 9,
        "bytes": sum(sizes),
        "isFenced": False,
    }
    assert (four["ledgerId"], four["entries"], four["firstEntryId"], four["lastEntryId"]) == (4, 2, 7, 9)
    assert four["isFenced"]
    shown = run("read-ledger", "3", "--first", "2", "--last", "6", "--bytes", data=data)
    assert [one["entryId"] for one in shown] == [2, 3, 4, 5, 6]
    assert [bytes.fromhex(one["data"]) for one in shown[:3]] == entries_of(3, 0, 5)[2:]
    assert [one["bytes"] for one in shown] == sizes[2:7]
    assert "no entry of ledger 5" in run("read-ledger", "5", data=data, code=-1)


def test_a_ledger_is_shown_a_window_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "b"
    filled(data)
    filled(data, first=5)
    expected = entries_of(3, 0, 5) + entries_of(3, 5, 5)
    held: list[int] = []
    with StoppedBookie([(str(data / "journal"), str(data / "ledgers"))]) as stopped:
        entries = stopped.entries(3)
        assert {type(field) for entry in entries.values() for field in entry} == {str, int}, "no bytes of any"
        reads = StoppedDirectories._window

        def window(part: StoppedDirectories, ledger_id: int, wanted: Mapping[int, FoundEntry]) -> Iterator[bytes]:
            held.append(sum(entry.size_bytes for entry in wanted.values()))
            return reads(part, ledger_id, wanted)

        monkeypatch.setattr(StoppedDirectories, "_window", window)
        for limit in (1, 2 * len(expected[0]), 1 << 20):
            monkeypatch.setattr(stopped_bookie, "WINDOW_BYTES", limit)
            held.clear()
            assert list(stopped.contents(3, entries)) == expected
            assert sum(held) == sum(map(len, expected))
            assert max(held) <= max(limit, max(map(len, expected)))


def test_each_chunk_of_a_log_counts_where_no_journal_tells_the_same(tmp_path: Path) -> None:
    data = tmp_path / "b"
    filled(data)
    filled(data, first=5)
    for journal in (data / "journal").rglob("*.journal"):
        journal.unlink()
    three, four = run("list-ledgers", data=data)
    assert (three["ledgerId"], three["entries"], three["isFenced"]) == (3, 10, False)
    assert (four["ledgerId"], four["entries"], four["isFenced"]) == (4, 2, True)
    assert [one["entryId"] for one in run("read-ledger", "4", data=data)] == [7, 9]


def test_sanity_names_what_is_wrong(tmp_path: Path) -> None:
    data = tmp_path / "b"
    filled(data)
    found = run("sanity", data=data)
    assert (found["isSane"], found["problems"], found["ledgers"], found["entries"]) == (True, [], 2, 7)
    (log,) = (data / "ledgers").glob("*.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
    (problem,) = run("sanity", data=data, code=1)["problems"]
    assert problem.startswith(f"{log} at offset ")
    assert problem.endswith(": damaged")
    version = data / "journal" / "VERSION"
    version.write_bytes(version.read_bytes()[:20])
    (data / "ledgers" / "cookie").unlink()
    problems = run("sanity", data=data, code=1)["problems"]
    for path in (version, data / "ledgers" / "cookie"):
        assert any(str(path) in problem for problem in problems), (path, problems)


def test_several_directories_are_looked_at_as_one_bookie(tmp_path: Path) -> None:
    data = tmp_path / "b"
    also = (f"journalDirectories={data}/journal", f"ledgerDirectories={tmp_path}/x,{tmp_path}/y")
    told = [text for one in also for text in ("--set", one)]
    filled(data, also=also)
    assert [one["ledgerId"] for one in run("list-ledgers", *told, data=data)] == [3, 4]
    assert [one["entryId"] for one in run("read-ledger", "4", *told, data=data)] == [7, 9]
    found = run("sanity", *told, data=data)
    assert (found["isSane"], found["ledgers"], found["entries"], found["journals"]) == (True, 2, 7, 2)
    turned = ("--set", f"ledgerDirectories={tmp_path}/y,{tmp_path}/x", "--set", also[0])
    problems = run("sanity", *turned, data=data, code=1)["problems"]
    assert any("belong to another pair of directories, from 3 on" in problem for problem in problems)
    more = tuple(f"{one},{tmp_path}/z" if one.startswith("ledger") else one for one in also)
    for other, refusal in ((more, "keeps the number and the order"), ((turned[1], also[0]), "not of ")):
        with pytest.raises(DataDirectoryError, match=refusal):
            filled(data, first=5, also=other)
    filled(data, first=5, also=also)
    assert run("list-ledgers", *told, data=data)[0]["entries"] == 10
    assert run("format", "--force", *told, data=data)["removedFiles"] > 10
    assert run("list-ledgers", *told, data=data) == []


def test_format_asks_removes_its_own_and_leaves_the_rest(tmp_path: Path) -> None:
    data = tmp_path / "b"
    filled(data)
    (data / "ledgers" / "lost+found").mkdir()
    foreign = [data / "ledgers" / "bookie.log", data / "journal" / "notes.tmp", data / "journal" / "mine.journal"]
    for file in foreign:
        file.write_bytes(b"of somebody else")
    (data / "ledgers" / "quarantine").write_bytes(b"of the bookie that goes")
    before = sorted(data.rglob("*"))
    assert "Add --force" in run("format", data=data, code=-1)
    assert sorted(data.rglob("*")) == before
    assert run("format", "--force", data=data)["removedFiles"] > 5
    left = {path for path in data.rglob("*") if path.name not in ("journal", "ledgers")}
    assert left == {data / "ledgers" / "lost+found", *foreign}
    assert run("format", data=data) == {"removedFiles": 0}
    filled(data)
    assert set(foreign) <= set(data.rglob("*")), "a start removes its own leftovers alone"
    assert "there is no bookie" in run("sanity", data=tmp_path / "none", code=-1)
