"""After a fork, and at the end of a program that closes nothing: a clear error or a quiet end, never a deadlock."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import geminga
from geminga.runtime.fork import fork_generation

PATIENCE_S = 30


def run_program(text: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter with the broker's URL as its argument."""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(text), url]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def url():
    with geminga.Standalone() as broker:
        yield broker.service_url


def test_forked_child_is_told_and_can_make_a_client_of_its_own(url: str) -> None:
    program = """
        import asyncio, os, sys
        import geminga.client as gc

        async def in_child(client, producer):
            for use in (lambda: producer.send(b"x"), producer.flush, producer.close, client.close,
                        lambda: client.create_producer("t")):
                try:
                    await use()
                except gc.ForkedProcess:
                    continue
                return 1
            async with gc.connect(sys.argv[1]) as own:
                other = await own.create_producer("forked")
                await other.send(b"of the child")
            return 0

        async def main():
            async with gc.connect(sys.argv[1]) as client:
                producer = await client.create_producer("forked")
                await producer.send(b"before")
                child = os.fork()
                if child == 0:
                    os._exit(asyncio.run(in_child(client, producer)))
                await producer.send(b"of the parent")
                status = await asyncio.to_thread(os.waitpid, child, 0)
                await producer.send(b"after")
                return os.waitstatus_to_exitcode(status[1])

        sys.exit(asyncio.run(main()))
    """
    result = run_program(program, url)
    assert (result.returncode, result.stderr) == (0, "")


def test_program_that_closes_nothing_ends_quietly(url: str) -> None:
    program = """
        import asyncio, sys
        import geminga.client as gc

        async def main():
            client = gc.connect(sys.argv[1])
            producer = await client.create_producer("unclosed")
            await producer.send(b"x")
            producer.send_nowait(b"never flushed")

        asyncio.run(main())
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), url], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_generation_is_that_of_this_process() -> None:
    assert fork_generation() == fork_generation()
