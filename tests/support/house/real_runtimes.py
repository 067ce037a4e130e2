"""Runtimes on the real machine, in tests that need it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga.runtime import Runtime, real_runtime

T = TypeVar("T")


async def close_runtime(runtime: Runtime) -> None:
    """Its disk and its threads, behind everything that used them."""
    await runtime.disk.close()
    await runtime.threads.close()


def run_on_real(
    main: Callable[[Runtime], Awaitable[T]], on_fatal: Callable[[str, BaseException], None] | None = None
) -> T:
    """What ``main`` returns, on a loop and a runtime of its own; what is fatal fails the test, unless it is awaited."""

    def unexpected(part: str, error: BaseException) -> None:
        raise AssertionError(f"fatal in {part}: {error!r}")

    async def whole() -> T:
        runtime = real_runtime(on_fatal or unexpected)
        try:
            return await main(runtime)
        finally:
            await close_runtime(runtime)

    return asyncio.run(whole())
