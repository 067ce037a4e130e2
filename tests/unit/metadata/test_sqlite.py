"""The SQLite store's file: what it refuses, how damage and a full disk are told, what a kill leaves."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys

import pytest

from geminga.metadata import MUST_NOT_EXIST, ChangeKind, SqliteMetadataStore, sqlite_file
from geminga.metadata.sqlite_file import SqliteFile
from geminga.metadata.sqlite_reserve import RESERVE_BYTES
from geminga.metadata.sqlite_tree import APPLICATION_ID
from geminga.model.errors import (
    CorruptionError,
    DataDirectoryError,
    DiskFullError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchNodeError,
    SessionExpiredError,
    UnavailableError,
    UnknownOutcomeError,
)
from geminga.runtime import SystemRng, next_turn
from support.house.real_runtimes import run_on_real


def make_file(path, *values):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(path))
        for name, value in values:
            await store.put(name, value, expected_version=None)
        await store.close()

    run_on_real(main)


def test_file_says_what_it_is(tmp_path):
    path = tmp_path / "metadata.db"
    make_file(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def open_refused(path):
    async def main(runtime):
        with pytest.raises(DataDirectoryError) as refusal:
            await SqliteMetadataStore.open(runtime, str(path))
        return str(refusal.value)

    return run_on_real(main)


def test_file_of_a_newer_format_is_refused_with_both_versions(tmp_path):
    path = tmp_path / "metadata.db"
    make_file(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    sentence = open_refused(path)
    assert str(path) in sentence
    assert "version 4" in sentence
    assert "knows 3" in sentence


@pytest.mark.parametrize("version", [1, 2])
def test_file_of_an_older_version_keeps_what_it_has_and_becomes_version_3(tmp_path, version):
    path = tmp_path / "metadata.db"
    make_file(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    before = connection.execute("SELECT * FROM node ORDER BY parent, name").fetchall()
    connection.close()
    run_on_real(lambda runtime: _open_and_close(runtime, path))
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    assert connection.execute("SELECT * FROM node ORDER BY parent, name").fetchall() == before
    connection.close()


def test_names_of_topics_are_encoded_again_in_a_file_of_version_2(tmp_path):
    path = tmp_path / "metadata.db"
    named = [
        ("/managed-ledgers/t/n/persistent/a%20b%2B~", b"ledgers"),
        ("/managed-ledgers/t/n/persistent/a%20b%2B~/s+~", b"cursor"),
        ("/managed-ledgers/t/n/persistent/plain/s+%2520", b"cursor of plain"),
        ("/admin/partitioned-topics/t/n/persistent/a%20b", b"partitions"),
        ("/schemas/t/n/~", b"schema"),
        ("/geminga/delayed-index/t/n/persistent/a%20b/s", b"index"),
        ("/other/a%20b~", b"other"),
    ]
    make_file(path, *named)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()

    async def found(runtime):
        store = await SqliteMetadataStore.open(runtime, str(path))
        for name, value in (
            ("/managed-ledgers/t/n/persistent/a+b%2B%7E", b"ledgers"),
            ("/managed-ledgers/t/n/persistent/a+b%2B%7E/s+%7E", b"cursor"),
            ("/managed-ledgers/t/n/persistent/plain/s+%2520", b"cursor of plain"),
            ("/admin/partitioned-topics/t/n/persistent/a+b", b"partitions"),
            ("/schemas/t/n/%7E", b"schema"),
            ("/geminga/delayed-index/t/n/persistent/a+b/s", b"index"),
            ("/other/a%20b~", b"other"),
        ):
            assert (await store.get(name)).value == value
        assert await store.children("/managed-ledgers/t/n/persistent") == ["a+b%2B%7E", "plain"]
        await store.close()

    for _ in range(2):  # the second time every checksum is looked at
        run_on_real(found)


async def _open_and_close(runtime, path):
    await (await SqliteMetadataStore.open(runtime, str(path))).close()


def test_file_of_another_program_is_refused(tmp_path):
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert "no metadata file of Geminga" in open_refused(path)


def test_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "metadata.db"
    path.write_bytes(b"something else entirely" * 100)
    assert str(path) in open_refused(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE node SET value = x'00' WHERE name = 'b'",
        "UPDATE node SET version = 7 WHERE name = 'b'",
        "UPDATE node SET session = 0, modified_ms = 1 WHERE name = 'b'",
        "UPDATE node SET crc = crc + 1 WHERE name = 'b'",
        "UPDATE node SET value = 'text' WHERE name = 'b'",
    ],
)
def test_node_damaged_while_open_is_never_served(tmp_path, statement):
    path = tmp_path / "metadata.db"

    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(path))
        await store.put("/a/b", b"precious", expected_version=None)
        await store.put("/a/c", b"fine", expected_version=None)
        change(path, statement)
        with pytest.raises(CorruptionError, match="/a/b"):
            await store.get("/a/b")
        with pytest.raises(CorruptionError, match="/a/b"):
            await store.put("/a/b", b"", expected_version=0)
        fine = await store.get("/a/c")
        assert fine is not None
        assert fine.value == b"fine"
        await store.close()

    run_on_real(main)


def change(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE node SET value = x'00' WHERE name = 'b'", "/a/b"),
        ("UPDATE node SET name = 'q' WHERE name = 'b'", "/a/q"),
        ("UPDATE node SET parent = '/z' WHERE name = 'b'", "/z/b"),
        ("UPDATE node SET name = CAST(x'ff' AS TEXT) WHERE name = 'b'", "damaged"),
        ("UPDATE property SET key = 'sessiom'", "no session"),
    ],
)
def test_damaged_node_is_told_at_start_although_nobody_asks_for_it(tmp_path, statement, named):
    path = tmp_path / "metadata.db"
    make_file(path, ("/a/b", b"precious"))
    change(path, statement)

    async def main(runtime):
        with pytest.raises(CorruptionError, match=named) as refusal:
            await SqliteMetadataStore.open(runtime, str(path))
        assert str(path) in str(refusal.value)

    run_on_real(main)


def crashed_log(path):
    """A file and its log as a kill -9 leaves them, with thirty transactions in the log."""

    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(path))
        for i in range(30):
            await store.put(f"/n/{i}", b"v%d" % i, expected_version=None)
        left = path.read_bytes(), (path.parent / f"{path.name}-wal").read_bytes()
        await store.close()
        return left

    return run_on_real(main)


def recovered(path, data, log):
    """What an open finds; the error if it refuses."""
    path.write_bytes(data)
    (path.parent / f"{path.name}-wal").write_bytes(log)

    async def main(runtime):
        try:
            store = await SqliteMetadataStore.open(runtime, str(path))
        except CorruptionError as error:
            return str(error)
        nodes = [await store.get(f"/n/{i}") for i in range(30)]
        await store.close()
        return [node.value if node is not None else None for node in nodes]

    return run_on_real(main)


def test_log_of_a_crash_is_read_whole_or_refused_wherever_a_bit_flips(tmp_path):
    path = tmp_path / "metadata.db"
    data, log = crashed_log(path)
    whole = [b"v%d" % i for i in range(30)]
    assert recovered(path, data, log) == whole
    rng = SystemRng(1)
    refusals = 0
    for _ in range(60):
        offset = rng.below(len(log))
        flipped = bytearray(log)
        flipped[offset] ^= 1 << rng.below(8)
        found = recovered(path, data, bytes(flipped))
        if isinstance(found, str):
            assert f"{path}-wal at offset" in found
            refusals += 1
        else:
            # The limit: damage to the last transactions can not be told from a torn end.
            assert found[:27] == whole[:27]
    assert refusals > 40


def test_torn_end_of_the_log_is_no_damage(tmp_path):
    path = tmp_path / "metadata.db"
    data, log = crashed_log(path)
    for cut in (1, 4000, 4120, 5000, len(log) - 32, len(log) - 1):
        found = recovered(path, data, log[:-cut])
        assert not isinstance(found, str)
    zeroed = log[:-8240] + bytes(4120) + log[-4120:]
    assert not isinstance(recovered(path, data, zeroed), str)


def test_full_disk_fails_the_writes_and_goes_away_again(tmp_path):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        await store.put("/a", b"old", expected_version=None)
        connection = store._file._tree._connection

        def limit(pages):
            return lambda: connection.execute(f"PRAGMA max_page_count = {pages}")

        pages = await runtime.threads.call(
            "metadata-write", lambda: connection.execute("PRAGMA page_count").fetchone()[0]
        )
        await runtime.threads.call("metadata-write", limit(pages))
        with pytest.raises((DiskFullError, UnknownOutcomeError)):
            await store.put("/a", bytes(100_000), expected_version=0)
        node = await store.get("/a")
        assert node is not None
        assert node.value == b"old"
        await runtime.threads.call("metadata-write", limit(1 << 30))
        await store.put("/a", bytes(100_000), expected_version=0)
        await store.close()

    run_on_real(main)


class FullDisk:
    """A connection for which there is no room while the reserve has it: whatever writes fails."""

    def __init__(self, connection, reserve):
        self._connection = connection
        self._reserve = reserve

    def execute(self, statement, *arguments):
        if statement == "COMMIT" and self._reserve.exists():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def test_write_that_finds_no_room_has_that_of_the_reserve_which_is_made_again(tmp_path):
    async def main(runtime):
        path, reserve = tmp_path / "metadata.db", tmp_path / "metadata.db-reserve"
        store = await SqliteMetadataStore.open(runtime, str(path))
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
        await store.put("/a/b", b"1", expected_version=MUST_NOT_EXIST)
        working = store._file._tree._connection
        store._file._tree._connection = FullDisk(working, reserve)
        results = await asyncio.gather(
            store.delete("/a/b"),
            store.put("/c", b"2", expected_version=MUST_NOT_EXIST),
            store.take_sequences("/ids", 3),
            store.delete("/missing"),
            return_exceptions=True,
        )
        assert (results[0], list(results[2]), type(results[3])) == (None, [0, 1, 2], NoSuchNodeError)
        assert await store.children("/a") == []
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES, "there was room for it again"
        await store.put("/c", b"3", expected_version=0)
        store._file._tree._connection = working
        await store.close()

    run_on_real(main)


def test_start_that_finds_no_room_has_that_of_the_reserve(tmp_path, monkeypatch):
    path, reserve = tmp_path / "metadata.db", tmp_path / "metadata.db-reserve"
    connect = sqlite3.connect
    given_up = 0

    def full(*arguments, **options):
        nonlocal given_up
        given_up += not reserve.exists()
        return FullDisk(connect(*arguments, **options), reserve)

    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(path))
        await store.put("/a", b"1", expected_version=MUST_NOT_EXIST)
        await store.close()
        monkeypatch.setattr(sqlite3, "connect", full)
        store = await SqliteMetadataStore.open(runtime, str(path))
        assert given_up
        assert (await store.get("/a")).value == b"1"
        await store.close()
        reserve.unlink()
        reserve.mkdir()
        with pytest.raises(DiskFullError):
            await SqliteMetadataStore.open(runtime, str(path))

    run_on_real(main)


class BrokenCommit:
    """A connection whose COMMIT fails after or without having happened."""

    def __init__(self, connection, code):
        self._connection = connection
        self._code = code

    def execute(self, statement, *arguments):
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize(("code", "is_fatal"), [(sqlite3.SQLITE_IOERR, True), (sqlite3.SQLITE_FULL, False)])
def test_failed_commit_is_unknown_and_fatal_unless_the_disk_is_full(tmp_path, code, is_fatal):
    fatals = []

    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        working = store._file._tree._connection
        store._file._tree._connection = BrokenCommit(working, code)
        results = await asyncio.gather(
            *(store.put(f"/n/{i}", b"", expected_version=MUST_NOT_EXIST) for i in range(3)), return_exceptions=True
        )
        assert all(isinstance(result, (UnknownOutcomeError, UnavailableError)) for result in results)
        assert isinstance(results[0], UnknownOutcomeError)
        store._file._tree._connection = working
        if is_fatal:
            with pytest.raises(UnavailableError):
                await store.put("/later", b"", expected_version=None)
            await runtime.threads.call("metadata-write", store._file._tree.close)
            await runtime.threads.call("metadata-read", store._file._reader.close)
        else:
            await store.put("/later", b"", expected_version=None)
            await store.close()

    run_on_real(main, on_fatal=lambda part, error: fatals.append(part))
    assert fatals == (["metadata store"] if is_fatal else [])


def test_writes_queued_during_a_commit_share_the_next_one(tmp_path):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        commits = []
        submit = store._file._tree.commit

        class Counting:
            path = store._file._tree.path

            def __getattr__(self, name):
                return getattr(tree, name)

            def commit(self):
                commits.append(1)
                submit()

        tree = store._file._tree
        store._file._tree = Counting()
        await asyncio.gather(*(store.put(f"/n/{i}", b"", expected_version=None) for i in range(200)))
        store._file._tree = tree
        await store.close()
        return len(commits)

    assert run_on_real(main) == 2


CHILD = """
import asyncio, sys
from geminga.metadata import SqliteMetadataStore
from geminga.runtime import real_runtime

async def main():
    runtime = real_runtime(lambda part, error: sys.exit(3))
    store = await SqliteMetadataStore.open(runtime, sys.argv[1])
    first = len(await store.children("/n"))
    await store.put("/lease", b"", expected_version=-1, ephemeral=True)
    async def write(i):
        await store.put(f"/n/{i:06d}", str(i).encode() * 20, expected_version=-1)
        print(i, flush=True)
    for start in range(first, first + 100_000, 10):
        await asyncio.gather(*(write(i) for i in range(start, start + 10)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_acknowledged_writes_survive_kill_9(tmp_path):
    """1. a child writes and prints what is acknowledged; 2. kill -9 in the middle; 3. everything printed is there."""
    path = tmp_path / "metadata.db"
    acknowledged: set[int] = set()
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            acknowledged.add(int(line))
            if len(acknowledged) % 100 == 0:
                break
        child.send_signal(signal.SIGKILL)
        acknowledged |= {int(line) for line in child.stdout if line.endswith("\n")}
        child.wait()
        child.stdout.close()

        async def main(runtime, acknowledged=frozenset(acknowledged)):
            store = await SqliteMetadataStore.open(runtime, str(path))
            present = {int(name) for name in await store.children("/n")}
            assert acknowledged <= present
            assert present == set(range(len(present)))
            assert not await store.exists("/lease")
            for i in sorted(acknowledged)[-20:]:
                node = await store.get(f"/n/{i:06d}")
                assert node is not None
                assert node.value == str(i).encode() * 20
            await store.close()

        run_on_real(main)


def test_sessions_of_one_file_end_one_by_one_and_all_at_the_next_start(tmp_path):
    async def main(runtime):
        path = str(tmp_path / "m.db")
        first = await SqliteMetadataStore.open(runtime, path)
        assert isinstance(first._file, SqliteFile)
        second, third = await first.open_session(), await first.open_session()
        for name, store in (("1", first), ("2", second), ("3", third)):
            made = await store.put(f"/e/{name}", b"", expected_version=None, ephemeral=True)
            assert made.stat.is_own
        node = await first.get("/e/2")
        assert node is not None
        assert (node.stat.is_ephemeral, node.stat.is_own) == (True, False)
        heard = []
        first.watch_node("/e/2", heard.append)
        await second.close()
        assert await first.children("/e") == ["1", "3"]
        with pytest.raises(UnavailableError):
            await second.get("/e/1")
        with pytest.raises(SessionExpiredError):
            await first._file.write(
                lambda tree: (None, tree.delete("/e/1", expected_version=None, session=second.session)), 0
            )
        await next_turn()
        assert [one.kind for one in heard] == [ChangeKind.DELETED]
        # A crash ends nobody's session; the next start ends all.
        await runtime.threads.call("metadata-read", first._file._reader.close)
        await runtime.threads.call("metadata-write", first._file._tree.close)
        again = await SqliteMetadataStore.open(runtime, path)
        assert await again.children("/e") == []
        assert again.session > third.session
        await again.close()

    run_on_real(main)


def test_reads_of_one_turn_go_together_and_one_that_fails_fails_alone(tmp_path):
    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        for number in range(3):
            await store.put(f"/{number}", b"%d" % number, expected_version=None)
        file = store._file

        def found(name):
            def read(tree):
                if name == "/1":
                    raise sqlite3.DatabaseError("told to fail")
                return tree.get(name, 0)

            return read

        reads = [file.read(found(f"/{number}")) for number in range(3)]
        cancelled = file.read(found("/2"))
        cancelled.cancel()
        before = runtime.threads._lanes._under_way.get("metadata-read", 0)
        told = await asyncio.gather(*reads, return_exceptions=True)
        assert before == 0, "they wait for the end of the turn"
        assert [told[0].value, told[2].value] == [b"0", b"2"]
        assert isinstance(told[1], MetadataError)
        assert "told to fail" in str(told[1])
        # A read that waits when the file is closed is answered.
        last = store.get("/0")
        waiting = asyncio.ensure_future(last)
        await next_turn()
        await store.close()
        assert (await waiting).value == b"0"

    run_on_real(main)


def test_more_reads_than_may_wait_are_refused_and_those_before_are_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "QUEUED_READS_MAX", 5)
    monkeypatch.setattr(sqlite_file, "GROUP_READS_MAX", 2)

    async def main(runtime):
        store = await SqliteMetadataStore.open(runtime, str(tmp_path / "metadata.db"))
        told = await asyncio.gather(*(store.exists("/") for _ in range(7)), return_exceptions=True)
        assert told[:5] == [True] * 5
        assert [str(each) for each in told[5:]] == ["5 metadata reads are waiting"] * 2
        assert all(isinstance(each, MetadataUnavailableError) for each in told[5:])
        assert await store.exists("/")
        await store.close()

    run_on_real(main)
