"""Times of a metadata store's operations, as Pulsar counts them, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataStore
from geminga.metadata.measured import BUCKETS_MS, STORE_NAME, MeasuredMetadataStore
from geminga.metadata.ports import Node, PutResult
from geminga.model.errors import BadVersionError, NoSuchNodeError
from geminga.model.exposition import Page
from geminga.runtime import wait_ms


class Slow(MemoryMetadataStore):
    """Answers after 7 ms."""

    async def get(self, path: str) -> Node | None:
        await wait_ms(7)
        return await super().get(path)

    async def put(self, path: str, value: bytes, **options: object) -> PutResult:
        await wait_ms(7)
        return await super().put(path, value, **options)


def page_of(store: MeasuredMetadataStore) -> str:
    page = Page()
    for labels, source in store.sources():
        page.add_source(source, labels)
    return page.text()


def run(main: Callable[[MeasuredMetadataStore], Awaitable[None]]) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            await main(MeasuredMetadataStore(Slow(node.runtime, MemoryMetadata()), node.runtime.clock))

        await world.node("broker").run(on_node)

    sim.run(scenario)


def test_each_operation_is_in_its_bucket_and_failures_are_apart() -> None:
    async def main(store: MeasuredMetadataStore) -> None:
        await store.put("/a", b"12345", expected_version=-1)
        with pytest.raises(BadVersionError):
            await store.put("/a", b"again", expected_version=-1)
        assert await store.get("/none") is None
        with pytest.raises(NoSuchNodeError):
            await store.delete("/none")
        assert await store.children("/") == ["a"]
        lines = page_of(store).splitlines()
        labels = f'name="{STORE_NAME}",type='
        put = f'pulsar_metadata_store_ops_latency_ms_bucket{{{labels}"put",status="success",le='
        assert [line for line in lines if line.startswith(put)] == [
            f'{put}"{bound}"}} {int(float(bound) >= 10)}' for bound in (*map(float, BUCKETS_MS), "+Inf")
        ]
        counts = {
            (kind, status): next(
                float(line.split()[-1])
                for line in lines
                if line.startswith(f'pulsar_metadata_store_ops_latency_ms_count{{{labels}"{kind}",status="{status}"')
            )
            for kind in ("get", "put", "del")
            for status in ("success", "fail")
        }
        assert counts == {
            ("get", "success"): 1,
            ("get", "fail"): 0,
            ("put", "success"): 1,
            ("put", "fail"): 1,
            ("del", "success"): 0,
            ("del", "fail"): 1,
        }
        # Only what was written counts.
        assert lines[-1] == f'pulsar_metadata_store_put_bytes_total{{name="{STORE_NAME}"}} 5'

    run(main)


def test_page_is_one_histogram_whose_lines_stand_together() -> None:
    async def main(store: MeasuredMetadataStore) -> None:
        names = [line.partition("{")[0].rpartition("_")[2] for line in page_of(store).splitlines() if "latency" in line]
        assert names[0] == "ms histogram"
        assert [part for i, part in enumerate(names) if i and part != names[i - 1]] == ["bucket", "sum", "count"]

    run(main)


def test_everything_else_is_handed_on() -> None:
    async def main(store: MeasuredMetadataStore) -> None:
        held: MetadataStore = store
        heard: list[object] = []
        for end in (held.watch_node("/a", heard.append), held.watch_children("/", heard.append)):
            assert callable(end)
        held.on_session_event(heard.append)
        await held.put("/a", b"", expected_version=None)
        await wait_ms(1)
        assert len(heard) == 2
        assert await held.exists("/a")
        assert await held.next_sequence("/a") == 0
        await held.sync()
        await held.close()

    run(main)
