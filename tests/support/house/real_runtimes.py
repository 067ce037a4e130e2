"""Runtimes on the real machine, in tests that need it."""

from __future__ import annotations

from geminga.runtime import Runtime


async def close_runtime(runtime: Runtime) -> None:
    """Its disk and its threads, behind everything that used them."""
    await runtime.disk.close()
    await runtime.threads.close()
