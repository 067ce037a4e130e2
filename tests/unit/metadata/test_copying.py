"""A metadata tree copied into an empty one: what is refused, what is made equal, what is noticed."""

from __future__ import annotations

from hashlib import sha256
from typing import Self

import pytest

from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults, copying
from geminga.metadata.copying import MetadataCopy, refuse_unfinished, scan
from geminga.metadata.core.copying import MARKER_PATH, Marker, TreeDigest
from geminga.model.errors import CorruptionError, DataDirectoryError, MetadataError
from support.house.copied_trees import MemorySource, values_of
from support.worlds.ledgers import Cluster, run_cluster

NAME = "zk:there"
OURS = Marker("1", "/data")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch) -> None:
    """Each tree here is several windows."""
    monkeypatch.setattr(copying, "WINDOW_NODES", 7)
    monkeypatch.setattr(copying, "WINDOW_BYTES", 5)


class Trees:
    """A source with some nodes, and a target."""

    def __init__(self, cluster: Cluster, faults: MetadataFaults | None = None) -> None:
        self.from_server, self.to_server = MemoryMetadata(), MemoryMetadata()
        self.source = MemoryMetadataStore(cluster.runtime, self.from_server)
        self.target = MemoryMetadataStore(cluster.runtime, self.to_server, faults)

    async def fill(self) -> Self:
        for i in range(40):
            await self.source.put(f"/a/{i % 4}/{i}", b"%d" % i, expected_version=None)
        await self.source.put("/counted/-", b"", expected_version=None, ephemeral=True, sequential=True)
        await self.source.put("/counted/kept-", b"k", expected_version=None, sequential=True)
        for _ in range(4):
            await self.source.put("/counted/-", b"", expected_version=None, ephemeral=True, sequential=True)
        await self.source.put("/counted/deeper/-", b"", expected_version=None, ephemeral=True, sequential=True)
        await self.source.put("/away", b"", expected_version=None, ephemeral=True)
        return self

    async def copy(self, marker: Marker = OURS, **more) -> MetadataCopy:
        found = await scan(MemorySource(self.from_server), NAME, lambda path, value: None)
        return MetadataCopy(MemorySource(self.from_server), self.target, marker, NAME, of=found.nodes, **more)

    async def whole(self, **more) -> None:
        copy = await self.copy(**more)
        await copy.look()
        await copy.begin()
        await copy.write()
        await copy.count()
        assert await copy.compare() == await scan(MemorySource(self.from_server), NAME, lambda path, value: None)
        await copy.end()


def test_copy_has_every_node_that_stays_and_counts_on():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        told: list[tuple[str, int, int]] = []
        await trees.whole(on_progress=lambda what, done, of: told.append((what, done, of)))
        copied = values_of(trees.to_server)
        assert copied.pop("/geminga") == b""
        assert copied == values_of(trees.from_server)
        assert await trees.target.next_sequence("/counted") >= 6
        assert await trees.target.next_sequence("/counted/deeper") >= 1
        assert not await trees.target.exists("/away")
        assert told[-1] == ("compared", len(copied), len(copied))
        assert {what for what, _, _ in told} == {"copied", "compared"}

    run_cluster(main)


def test_the_digest_is_that_of_the_format():
    digest = TreeDigest()
    digest.add("/", b"")
    digest.add("/a", b"x")
    written = bytes.fromhex("00000000000000012f000000000000000000000000000000022f61000000000000000178")
    assert digest.summary() == (2, 1, sha256(written).hexdigest())


def test_copy_survives_lost_requests_and_answers():
    async def main(cluster: Cluster):
        trees = Trees(cluster, MetadataFaults(unknown_before_percent=20, unknown_after_percent=20, delay_ms_max=5))
        await trees.fill()
        await trees.whole()
        assert values_of(trees.from_server).items() <= values_of(trees.to_server).items()

    run_cluster(main)


def test_target_with_something_else_is_refused_and_left_as_it_is():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        for i in range(7):
            await trees.target.put(f"/other{i}", b"", expected_version=None)
        before = values_of(trees.to_server)
        with pytest.raises(DataDirectoryError, match=r"holds /other0, .*/other4 and 2 more. Nothing was changed"):
            await (await trees.copy()).look()
        assert values_of(trees.to_server) == before

    run_cluster(main)


def test_unfinished_copy_of_another_is_refused_and_nothing_starts_on_one():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        await (await trees.copy(Marker("2", "/elsewhere"))).begin()
        copy = await trees.copy()
        with pytest.raises(DataDirectoryError, match="unfinished copy of /elsewhere"):
            await copy.look()
        with pytest.raises(DataDirectoryError, match="began meanwhile"):
            await copy.begin()
        with pytest.raises(DataDirectoryError, match="unfinished copy of /elsewhere"):
            await copy.end()
        with pytest.raises(DataDirectoryError, match="geminga metadata copy /elsewhere zk:there again"):
            await refuse_unfinished(trees.target, NAME)
        await refuse_unfinished(trees.source, NAME)
        await trees.target.put(MARKER_PATH, b"?", expected_version=None)
        with pytest.raises(CorruptionError, match="no marker of a copy"):
            await copy.look()

    run_cluster(main)


def test_zookeepers_own_node_is_nobodys():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        await trees.target.put("/zookeeper/quota", b"", expected_version=None)
        await trees.whole()

    run_cluster(main)


def test_next_attempt_makes_everything_as_the_source_is_now():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        first = await trees.copy()
        await first.begin()
        await first.write()
        await trees.source.put("/a/0/4", b"changed", expected_version=None)
        await trees.source.put("/a/0/new/below", b"", expected_version=None)
        await trees.source.delete("/a/3/3")
        await trees.source.delete("/counted/kept-0000000001")
        await trees.target.put("/a/1/5/stray/deep", b"", expected_version=None)
        await trees.whole()
        copied = values_of(trees.to_server)
        assert {path: copied[path] for path in copied if path != "/geminga"} == values_of(trees.from_server)

    run_cluster(main)


@pytest.mark.parametrize(
    ("path", "value", "story"),
    [
        ("/a/0/8", None, "/a/0/8 is missing"),
        ("/a/0/8", b"other", "/a/0/8 has another value"),
        ("/a/0/stray", b"", "/a/0/stray is not the source's"),
    ],
)
def test_what_somebody_changed_meanwhile_is_named(path: str, value: bytes | None, story: str):
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        copy = await trees.copy()
        await copy.begin()
        await copy.write()
        if value is None:
            await trees.target.delete(path)
        else:
            await trees.target.put(path, value, expected_version=None)
        with pytest.raises(MetadataError, match=story):
            await copy.compare()

    run_cluster(main)


def test_counter_that_is_behind_is_named():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()
        for _ in range(5):
            await trees.source.put("/counted/-", b"", expected_version=None, ephemeral=True, sequential=True)
        copy = await trees.copy()
        await copy.begin()
        await copy.write()
        with pytest.raises(MetadataError, match="/counted counts 0, expected 11 or more"):
            await copy.compare()
        # Whose counters are brought up elsewhere are not looked at.
        other = await trees.copy(counted_elsewhere=("/counted",))
        await other.count()
        await other.compare()
        assert await trees.target.next_sequence("/counted") == 0

    run_cluster(main)


def test_what_the_target_can_not_keep_is_named_before_anything_is_written():
    async def main(cluster: Cluster):
        trees = await Trees(cluster).fill()

        def check(path: str, value: bytes) -> None:
            if path.startswith("/a/2/"):
                raise MetadataError(f"{path}: too large")

        with pytest.raises(MetadataError, match=r"10 nodes can not be kept by zk:there, .*/a/2/10: too large.*5 more"):
            await scan(MemorySource(trees.from_server), NAME, check)

    run_cluster(main)
