"""Apache's bookie client at our bookie, in both versions of the protocol, and our client at Apache's bookie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper.remote import RemoteBookie
from geminga.model.bookie_port import BookieInfo, LacResult
from geminga.model.errors import LedgerFencedError, NoSuchEntryError, NoSuchLedgerError, WrongMasterKeyError
from geminga.runtime.real import real_runtime
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from support.worlds.bookies import Calls, Listed, entries_of

pytestmark = pytest.mark.integration

JAVA: Final = Path(__file__).parent / "java"
KEY: Final = b"k" * 20
ANSWER_LIMIT_S: Final = 60.0
#: What Apache's client makes of our bookie's answers, whichever version it speaks.
CALLS: Final = {
    **{f"add {i}": f"OK {i}" for i in range(5)},
    "add.large 5": "OK 5",
    "read": "OK 2 entry_2",
    "read.last": "OK -1 300000_bytes",
    "read.absent": "BKNoSuchEntryException 77 -",
    "read.no_ledger": "BKNoSuchLedgerExistsException 0 -",
    "write_lac": "OK",
    "read_lac": "OK 20 300036",
    "info": "OK true",
    "fence": "OK -1 300000_bytes",
    "add.fenced 6": "BKLedgerFencedException 6",
    "add.recovery 6": "OK 6",
    "fence.wrong_key": "BKUnauthorizedAccessException -1 -",
    "fence.unknown": "BKNoSuchEntryException -1 -",
    "add.fenced_unknown 0": "BKLedgerFencedException 0",
}
CALLS_OF_VERSION: Final = {
    2: {
        "batch": "OK entry_0 entry_1 entry_2",
        # 36 bytes, and each entry of 43 with its size.
        "batch.size": "OK entry_0 entry_1 entry_2",
        "batch.all": "OK entry_0 entry_1 entry_2 entry_3 entry_4 300000_bytes",
        "batch.absent": "BKNoSuchEntryException",
    },
    3: {
        "poll.over": "OK -1 -",
        "poll.known": "OK 2 entry_2",
        "force": "OK",
        "list": "6 [0, 1, 2, 3, 4, 5]",
    },
}


@asynccontextmanager
async def program(name: str, *arguments: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """A Java program; each call gives the next line that it says, "" at its end. It ends with its input."""
    from tools.interop.artifacts import class_path, java, pinned_version

    command = [java(), "-Xmx256m", "-cp", class_path(pinned_version()), str(JAVA / name), *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdout = process.stdout
    heard: list[str] = []

    async def line() -> str:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while raw := await stdout.readline():
                heard.append(raw.decode(errors="replace"))
                if heard[-1].startswith("> "):
                    return heard[-1][2:].strip()
        return ""

    try:
        yield line
        process.stdin.close()
        rest = (await asyncio.wait_for(stdout.read(), ANSWER_LIMIT_S)).decode(errors="replace")
        assert await process.wait() == 0, ("".join(heard) + rest)[-4000:]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def named(line: str) -> tuple[str, str]:
    """Name and outcome; an add is named with the entry it answers for."""
    name, _, outcome = line.partition(" ")
    return (f"{name} {outcome.split()[-1]}", outcome) if name.startswith("add") else (name, outcome)


@pytest.mark.parametrize("version", [2, 3])
def test_apaches_client_makes_every_call_of_our_bookie(version: int, tmp_path: Path, judge_is_apache: bool) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's client calls")

    async def main() -> None:
        fatal: list[str] = []
        runtime = real_runtime(lambda part, error: fatal.append(f"{part}: {error}"))
        bookie = await LocalBookie.open(runtime, str(tmp_path), BookieConfig(), ledgers=Listed())
        server = await BookieServer.listen(runtime, bookie, "127.0.0.1", 0)
        said = []
        async with program("BookieCalls.java", "127.0.0.1", str(server.port), str(version)) as line:
            while told := await line():
                said.append(told)
        await server.close()
        await bookie.close()
        assert dict(map(named, said)) == {**CALLS, **CALLS_OF_VERSION[version]}
        assert fatal == []

    asyncio.run(main())


def test_we_make_every_call_of_apaches_bookie(tmp_path: Path, judge_is_apache: bool) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's bookie answers")

    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        async with program("ApacheBookie.java", str(tmp_path)) as line:
            remote = RemoteBookie(runtime, "apache", "127.0.0.1", int(await line()))
            try:
                await everything(Calls(remote))
            finally:
                await remote.close()

    asyncio.run(main())


async def everything(bookie: Calls) -> None:
    """Each call of the port, and what Apache's bookie answers."""
    entries = entries_of(3, 0, 300)
    assert await bookie.add(3, 0, entries, key=KEY) is None
    found = await bookie.read(3, *range(302))
    assert found[:300] == entries
    assert [type(error) for error in found[300:]] == [NoSuchEntryError] * 2
    bounded = await bookie.read(3, *range(302), bytes_max=1000)
    assert bounded == entries[: 1000 // len(entries[0])]
    striped = [entries_of(4, i, 1)[0] for i in (0, 2, 4)]
    assert await bookie.add_each(4, (0, 2, 4), striped, key=KEY) == {0: None, 2: None, 4: None}
    there = await bookie.read(4, 0, 1, 2, 3, 4)
    assert [there[i] for i in (0, 2, 4)] == striped
    assert [type(there[i]) for i in (1, 3)] == [NoSuchEntryError] * 2
    assert await bookie.listed(3) == [range(300)]
    assert await bookie.listed(4) == [range(1), range(2, 3), range(4, 5)]
    assert isinstance(await bookie.listed(9), NoSuchLedgerError)
    # Apache tells a ledger that it never heard of and one without entries not apart here.
    assert await bookie.lac(9) == LacResult(-1, None, None)
    announced = digest_for(DigestType.CRC32C, b"").encode_lac(3, 7)
    assert await bookie.announce(3, announced, key=KEY) is None
    assert await bookie.lac(3) == LacResult(299, entries[299], announced)
    info = await bookie.info()
    assert isinstance(info, BookieInfo)
    assert 0 < info.free_bytes <= info.total_bytes
    assert await bookie.fence(3, key=KEY) is None
    assert await bookie.fence(17, key=KEY) is None
    assert isinstance(await bookie.fence(4, key=b"x" * 20), WrongMasterKeyError)
    late = entries_of(3, 300, 1)
    assert isinstance(await bookie.add(3, 300, late, key=KEY), LedgerFencedError)
    assert isinstance(await bookie.add(17, 0, entries_of(17, 0, 1), key=KEY), LedgerFencedError)
    assert await bookie.add(3, 300, late, key=KEY, recovery=True) is None
    assert isinstance(await bookie.add(4, 9, entries_of(4, 9, 1), key=b"z" * 20), WrongMasterKeyError)
