"""A tree in two stores: whose session and changes are heard of, and what is done while the shared one is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga.metadata import MUST_NOT_EXIST, SessionEvent
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime
from support.worlds.metadata_stores import Inbox


class Below:
    """Everything below ``/shared``."""

    def is_shared(self, path: str) -> bool:
        return path.startswith("/shared")

    def is_border(self, path: str) -> bool:
        return path == "/"


def run(story: Callable[[DividedMetadataStore, MemoryMetadataStore, MemoryMetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        runtime = real_runtime(lambda part, error: None)
        own, shared = MemoryMetadataStore(runtime, MemoryMetadata()), MemoryMetadataStore(runtime, MemoryMetadata())
        divided = DividedMetadataStore(own, shared, Below())
        async with asyncio.timeout(30):
            await story(divided, own, shared)
        await divided.close()
        await close_runtime(runtime)

    asyncio.run(main())


def test_changes_are_told_wherever_they_are_made() -> None:
    async def story(divided: DividedMetadataStore, own: MemoryMetadataStore, shared: MemoryMetadataStore) -> None:
        nodes, children = Inbox(), Inbox()
        ends = [divided.watch_node(path, nodes) for path in ("/a", "/shared/a")]
        ends.append(divided.watch_children("/", children))
        await own.put("/a", b"", expected_version=MUST_NOT_EXIST)
        await shared.put("/shared/a", b"", expected_version=MUST_NOT_EXIST)
        await nodes.has(2)
        await children.has(2)
        assert sorted(nodes.kinds_and_paths()) == [("created", "/a"), ("created", "/shared/a")]
        for end in ends:
            end()
        await own.put("/b", b"", expected_version=None)
        await shared.put("/shared/a", b"x", expected_version=None)
        await shared.put("/shared-b", b"x", expected_version=None)
        await divided.sync()
        assert (len(nodes.items), len(children.items)) == (2, 2)

    run(story)


def test_the_session_that_is_heard_of_is_the_clusters_own() -> None:
    async def story(divided: DividedMetadataStore, own: MemoryMetadataStore, shared: MemoryMetadataStore) -> None:
        heard = Inbox()
        divided.on_session_event(heard)
        assert (await divided.put("/lock", b"", expected_version=None, ephemeral=True)).stat.is_own
        shared.expire_session(outage_ms=0)
        assert await divided.exists("/lock")
        own.expire_session(outage_ms=0)
        await heard.comes(SessionEvent.EXPIRED)
        assert not await divided.exists("/lock")
        assert heard.items.count(SessionEvent.EXPIRED) == 1

    run(story)


def test_without_the_shared_store_all_else_goes_on() -> None:
    async def story(divided: DividedMetadataStore, own: MemoryMetadataStore, shared: MemoryMetadataStore) -> None:
        del own
        await shared.close()
        await divided.put("/a", b"x", expected_version=None)
        assert await divided.exists("/a")
        assert [*await divided.take_sequences("/ids", 2)] == [0, 1]
        assert await divided.next_sequence("/ids") == 2
        with pytest.raises(MetadataUnavailableError):
            await divided.put("/shared/a", b"x", expected_version=None)
        with pytest.raises(MetadataUnavailableError):
            await divided.get("/shared/a")
        await divided.sync("/a")
        for path in ("/", "/shared", "/shared/a"):
            with pytest.raises(MetadataUnavailableError):
                await divided.sync(path)

    run(story)


def test_without_the_own_store_what_is_shared_can_be_known_to_be_new() -> None:
    async def story(divided: DividedMetadataStore, own: MemoryMetadataStore, shared: MemoryMetadataStore) -> None:
        del shared
        await own.close()
        await divided.sync("/shared/a")
        for path in ("/", "/a"):
            with pytest.raises(MetadataUnavailableError):
                await divided.sync(path)

    run(story)
