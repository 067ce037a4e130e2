"""Metrics of the storage over its socket: told to who asks; who does not tell them costs a page nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from geminga.app.servers import storage_metrics
from geminga.app.servers.storage_metrics import StorageMetrics, serve_metrics
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime


def fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"fatal in {part}: {error!r}")


def test_rows_are_those_of_the_sources_now(tmp_path: Path) -> None:
    async def main() -> None:
        runtime, path = real_runtime(fatal), str(tmp_path / "metrics.socket")
        values = {"a": 1.0}
        asking = StorageMetrics(runtime, path)
        assert await asking.rows() == ()  # nobody listens yet
        listener = await serve_metrics(runtime, path, [((("bookie", "b"),), lambda: values)])
        assert await asking.rows() == [((("bookie", "b"),), {"a": 1.0})]
        values["a"] = 2.0
        found = await asyncio.gather(*(asking.rows() for _ in range(20)))
        assert found == [[((("bookie", "b"),), {"a": 2.0})]] * 20
        await listener.close()
        assert await asking.rows() == ()
        await close_runtime(runtime)

    asyncio.run(main())


def test_too_much_and_nonsense_are_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(storage_metrics, "ANSWER_BYTES_MAX", 100)

    class Nonsense(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"nonsense")
            transport.close()

    async def main() -> None:
        runtime, path = real_runtime(fatal), str(tmp_path / "metrics.socket")
        asking = StorageMetrics(runtime, path)
        listener = await serve_metrics(runtime, path, [((), lambda: {"a" * 200: 1.0})])
        assert await asking.rows() == ()
        await listener.close()
        listener = await runtime.network.listen_local(Nonsense, path)
        assert await asking.rows() == ()
        await listener.close()
        await close_runtime(runtime)

    asyncio.run(main())
