"""Parents that a put on ZooKeeper misses: those who need the same one share the request; kazoo's thread is played."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo import exceptions as zk
from kazoo.protocol.states import ZnodeStat

from geminga.metadata import MUST_NOT_EXIST
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.metadata.zookeeper.connection import ZooKeeperConnection
from geminga.runtime import next_turn, real_runtime

STAT = ZnodeStat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)


class Server:
    """Nodes by path; a creation at ``slow`` is answered when the test says so."""

    def __init__(self, slow: str) -> None:
        self.nodes = {"/"}
        self.slow = slow
        self.held: list[tuple[Any, Any]] = []

    def submit(self, group: Any) -> None:
        for request, answer in group:
            if getattr(request, "path", "") == self.slow:
                self.held.append((request, answer))
            else:
                self.answer(request, answer)

    def answer(self, request: Any, answer: Any) -> None:
        if type(request).__name__ != "Create2":
            answer.set("")
        elif request.path.rpartition("/")[0] not in ("", *self.nodes):
            answer.set_exception(zk.NoNodeError())
        else:
            self.nodes.add(request.path)
            answer.set((request.path, STAT))


def no_fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"{part}: {error!r}")


@pytest.mark.parametrize("who", ["whoever asks first", "whoever waits"])
def test_one_of_several_who_need_a_parent_is_cut_off_and_the_others_go_on(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        server = Server("/a")
        monkeypatch.setattr(ZooKeeperConnection, "submit", lambda _, group: server.submit(group))
        store = ZooKeeperMetadataStore(real_runtime(no_fatal), parse_zookeeper_address("zk:127.0.0.1:1"), 30_000)
        store._requests.connected(store._connection.sync())
        puts = [
            asyncio.ensure_future(store.put(f"/a/{number}", b"", expected_version=MUST_NOT_EXIST))
            for number in range(3)
        ]
        while not server.held:
            await next_turn()
        for _ in range(10):
            await next_turn()
        assert len(server.held) == 1
        cut_off = puts.pop(0 if who == "whoever asks first" else 1)
        cut_off.cancel()
        for _ in range(10):
            await next_turn()
        server.slow = ""
        for request, answer in server.held:
            server.answer(request, answer)
        assert [done.path for done in await asyncio.gather(*puts)] == [
            f"/a/{number}" for number in range(3) if number != (0 if who == "whoever asks first" else 1)
        ]
        assert cut_off.cancelled()

    async def bounded() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(bounded())
