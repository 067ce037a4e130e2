"""What a failed call held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga.metadata import MUST_NOT_EXIST, WriteFault, cas
from geminga.metadata.socket.store import SocketMetadataStore
from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox
from geminga.metadata.zookeeper.requests import Requests
from geminga.model.errors import GemingaError, MetadataError
from geminga.runtime import all_ended, next_turn
from support.house.uncollected import uncollected
from support.worlds.metadata_stores import MemoryCase, SocketCase, SocketHarness, SqliteCase

CALLS = 5


async def failing(call: Callable[[], Awaitable[object]]) -> None:
    for _ in range(CALLS):
        with pytest.raises(GemingaError):
            await call()


CHANGES: dict[str, Callable[[object], Awaitable[object]]] = {
    "unknown": lambda store: cas.update(store, "/new", lambda _: b"2", attempts_max=3),
    "lost": lambda store: cas.update(store, "/a", lambda _: b"2", known=cas.CasResult(b"old", 7), attempts_max=1),
    "remove": lambda store: cas.remove(store, "/a", attempts_max=3),
    "remove read": lambda store: removed_as_read(store),
}


async def removed_as_read(store) -> None:
    node = await store.get("/a")
    await cas.remove_read(store, "/a", node, attempts_max=3)


@pytest.mark.parametrize("name", CHANGES)
def test_change_that_is_given_up_leaves_nothing(name) -> None:
    async def main(h) -> None:
        await h.store.put("/a", b"1", expected_version=None)
        h.store.faults.unknown_before_percent = 100
        with uncollected() as found:
            await failing(lambda: CHANGES[name](h.store))
        assert found == []

    MemoryCase(simulated=True).run(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_change_that_needs_two_attempts_leaves_nothing(fault) -> None:
    async def main(h) -> None:
        with uncollected() as found:
            for _ in range(CALLS):
                h.store.faults.next_writes.append(fault)
                await cas.update(h.store, "/a", lambda value: (value or b"") + b"1")
                h.store.faults.next_writes.append(fault)
                assert await cas.remove(h.store, "/a")
        assert found == []

    MemoryCase(simulated=True).run(main)


def test_refused_call_over_a_socket_leaves_nothing(tmp_path) -> None:
    async def main(h: SocketHarness) -> None:
        await h.store.put("/a", b"1", expected_version=MUST_NOT_EXIST)
        with uncollected() as found:
            await failing(lambda: h.store.put("/a", b"2", expected_version=MUST_NOT_EXIST))
            await failing(lambda: h.store.delete("/b", expected_version=None))
            await next_turn()
        assert found == []

    SocketCase(tmp_path / "metadata.socket", simulated=True).run(main)


def test_refused_change_of_a_file_leaves_nothing(tmp_path) -> None:
    """Other writes are committed with it."""

    async def main(h) -> None:
        await h.store.put("/a", b"1", expected_version=MUST_NOT_EXIST)

        async def one() -> None:
            with pytest.raises(GemingaError):
                await h.store.put("/a", b"2", expected_version=MUST_NOT_EXIST)

        async def together() -> None:
            await asyncio.gather(one(), one(), h.store.put("/b", b"x", expected_version=None))

        await together()
        with uncollected() as found:
            await together()
            await next_turn()
        assert found == []

    SqliteCase(tmp_path).run(main)


@pytest.mark.parametrize("how", ["answered", "lost"])
def test_failed_request_to_zookeeper_leaves_nothing(how) -> None:
    async def main() -> None:
        groups: list[AsyncResult] = []
        requests = Requests(
            Inbox(asyncio.get_running_loop()), lambda group: groups.extend(answer for _, answer in group)
        )

        async def call() -> None:
            requests.connected("sync")
            asked = asyncio.ensure_future(requests.ask("w", "w", is_write=True))
            for _ in range(5):
                await next_turn()
            if how == "lost":
                requests.lost()
            while groups:
                groups.pop(0).set_exception(MetadataError("no"))
            await next_turn()
            try:
                await asked
            finally:
                del asked

        with uncollected() as found:
            await failing(call)
            await next_turn()
        assert found == []

    asyncio.run(main())


def test_copy_that_fails_leaves_nothing() -> None:
    async def main(h) -> None:
        async def copy() -> None:
            await all_ended(h.store.delete("/none", expected_version=None) for _ in range(2))

        with uncollected() as found:
            await failing(copy)
            await next_turn()
        assert found == []

    MemoryCase(simulated=True).run(main)


def test_answer_of_zookeeper_that_is_asked_for_again_does_not_grow() -> None:
    answer = AsyncResult()
    answer.set_exception(MetadataError("no"))
    with uncollected() as found:
        for _ in range(CALLS):
            with pytest.raises(MetadataError, match="no"):
                answer.get()
    assert found == []
    assert answer.exception is not None
    assert answer.exception.__traceback__ is None


def test_connection_that_is_refused_leaves_nothing(tmp_path) -> None:
    path = tmp_path / "metadata.socket"

    async def main(h: SocketHarness) -> None:
        async def opened() -> None:
            await SocketMetadataStore.open(h.runtime, str(path), token="of another life", name="b")

        with uncollected() as found:
            await failing(opened)
            await next_turn()
        assert found == []

    SocketCase(path, simulated=True).run(main)
