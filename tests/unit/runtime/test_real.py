"""The composition of the real runtime."""

from __future__ import annotations

import asyncio
import sys

import pytest

from geminga.runtime import real_runtime, spawn
from geminga.runtime.real import SWITCH_INTERVAL_S
from support.house.real_runtimes import close_runtime


def test_real_runtime_works_and_hears_of_failed_tasks(tmp_path):
    fatal = []

    async def fail():
        raise ValueError("boom")

    async def main():
        runtime = real_runtime(lambda part, error: fatal.append(part))
        await runtime.disk.write_file(f"{tmp_path}/f", b"x")
        assert await runtime.threads.call("lane", lambda: 1) == 1
        assert runtime.clock.monotonic() > 0
        assert runtime.rng.below(1) == 0
        await asyncio.wait([spawn(fail(), name="doomed")])
        await close_runtime(runtime)

    asyncio.run(main())
    assert fatal == ["doomed"]


def test_real_runtime_lowers_the_switch_interval_and_never_raises_it():
    async def main():
        real_runtime(lambda part, error: None)

    before = sys.getswitchinterval()
    try:
        for set_to, expected in ((0.005, SWITCH_INTERVAL_S), (0.0001, 0.0001)):
            sys.setswitchinterval(set_to)
            asyncio.run(main())
            assert sys.getswitchinterval() == pytest.approx(expected, abs=2e-6)
    finally:
        sys.setswitchinterval(before)
