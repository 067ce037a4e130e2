"""What every metadata store promises (``metadata.ports``), on every backend."""

from __future__ import annotations

import asyncio

import pytest

from geminga.metadata import MUST_NOT_EXIST, SessionEvent
from geminga.metadata.ports import SEQUENCES_MAX
from geminga.model.errors import (
    BadVersionError,
    MetadataError,
    NodeNotEmptyError,
    NoSuchNodeError,
    UnavailableError,
)
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from support.worlds.metadata_stores import (
    SOCKETS,
    Harness,
    Inbox,
    store_case,
)


@pytest.fixture(params=["memory", "memory-simulated", "sqlite", "zookeeper", *SOCKETS])
def case(request, tmp_path):
    return store_case(request, tmp_path)


# ---- values and versions


def test_missing_node_reads_as_nothing(case):
    async def main(h: Harness):
        assert await h.store.get("/a/b") is None
        assert not await h.store.exists("/a/b")
        assert await h.store.children("/a") == []

    case.run(main)


def test_put_creates_at_version_zero_and_counts_up(case):
    async def main(h: Harness):
        created = await h.store.put("/a", b"one", expected_version=MUST_NOT_EXIST)
        assert (created.path, created.stat.version) == ("/a", 0)
        second = await h.store.put("/a", b"two", expected_version=0)
        assert second.stat.version == 1
        assert second.stat.created_ms == created.stat.created_ms
        node = await h.store.get("/a")
        assert node is not None
        assert (node.value, node.stat) == (b"two", second.stat)
        third = await h.store.put("/a", b"", expected_version=None)
        assert third.stat.version == 2

    case.run(main)


@pytest.mark.parametrize("expected", [MUST_NOT_EXIST, 1, 7])
def test_put_at_another_version_is_refused_and_changes_nothing(case, expected):
    async def main(h: Harness):
        await h.store.put("/a", b"one", expected_version=MUST_NOT_EXIST)
        with pytest.raises(BadVersionError):
            await h.store.put("/a", b"two", expected_version=expected)
        node = await h.store.get("/a")
        assert node is not None
        assert (node.value, node.stat.version) == (b"one", 0)

    case.run(main)


def test_put_of_a_version_on_a_missing_node_is_refused(case):
    async def main(h: Harness):
        with pytest.raises(BadVersionError):
            await h.store.put("/deep/er/a", b"", expected_version=0)
        assert not await h.store.exists("/deep")

    case.run(main)


def test_put_without_expectation_creates(case):
    async def main(h: Harness):
        assert (await h.store.put("/a", b"x", expected_version=None)).stat.version == 0

    case.run(main)


def test_version_begins_again_after_delete(case):
    async def main(h: Harness):
        await h.store.put("/a", b"", expected_version=None)
        await h.store.put("/a", b"", expected_version=None)
        await h.store.delete("/a")
        assert (await h.store.put("/a", b"", expected_version=MUST_NOT_EXIST)).stat.version == 0

    case.run(main)


def test_concurrent_puts_of_one_version_have_one_winner(case):
    async def main(h: Harness):
        await h.store.put("/a", b"", expected_version=None)
        writes = (h.store.put("/a", str(i).encode(), expected_version=0) for i in range(20))
        results = await asyncio.gather(*writes, return_exceptions=True)
        winners = [i for i, result in enumerate(results) if not isinstance(result, BaseException)]
        assert len(winners) == 1
        assert all(isinstance(r, BadVersionError) for i, r in enumerate(results) if i not in winners)
        node = await h.store.get("/a")
        assert node is not None
        assert node.value == str(winners[0]).encode()

    case.run(main)


def test_concurrent_writes_each_get_their_own_result(case):
    async def main(h: Harness):
        writes = [h.store.put(f"/n/{i % 50}", bytes([i]), expected_version=MUST_NOT_EXIST) for i in range(100)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, BadVersionError) for result in results] == [False] * 50 + [True] * 50
        assert len(await h.store.children("/n")) == 50

    case.run(main)


def test_value_of_the_largest_size_is_kept_and_one_more_byte_is_refused(case):
    async def main(h: Harness):
        largest = bytes(h.value_bytes_max)
        await h.store.put("/a", largest, expected_version=None)
        node = await h.store.get("/a")
        assert node is not None
        assert node.value == largest
        for size_bytes in (h.value_bytes_max + 1, METADATA_VALUE_BYTES_MAX + 1):
            with pytest.raises(MetadataError, match=r"value of \d+ bytes, .*at most \d+"):
                await h.store.put("/a", bytes(size_bytes), expected_version=None)
        after = await h.store.get("/a")
        assert after is not None
        assert after.stat == node.stat

    case.run(main)


@pytest.mark.parametrize(
    "path",
    [
        *("", "a", "a/b", "/a/", "//a", "/a//b", "/a\0b"),
        pytest.param("/a\ud800", id="half"),
        pytest.param("/\udcff/b", id="half first"),
    ],
)
def test_bad_path_is_refused_alone(case, path):
    async def main(h: Harness):
        async def ended(call):
            with pytest.raises(MetadataError, match="not a metadata path"):
                await call

        good = h.store.put("/good", b"", expected_version=None)
        _, found, _, _, _ = await asyncio.gather(
            ended(h.store.put(path, b"", expected_version=None)),
            good,
            ended(h.store.get(path)),
            ended(h.store.delete(path)),
            ended(h.store.take_sequences(path, 1)),
        )
        assert found.path == "/good"
        _, is_there = await asyncio.gather(ended(h.store.children(path)), h.store.exists("/good"))
        assert is_there

    case.run(main)


# ---- the tree


def test_missing_parents_are_created_empty(case):
    async def main(h: Harness):
        await h.store.put("/a/b/c", b"x", expected_version=None)
        parent = await h.store.get("/a/b")
        assert parent is not None
        assert (parent.value, parent.stat.version, parent.stat.is_ephemeral) == (b"", 0, False)
        assert await h.store.children("/") == ["a"]

    case.run(main)


def test_children_are_sorted_names_of_the_next_level_only(case):
    async def main(h: Harness):
        for path in ("/a/z", "/a/b/deeper", "/a/ä", "/a/Z", "/ab", "/a/10", "/a/9"):
            await h.store.put(path, b"", expected_version=None)
        assert await h.store.children("/a") == ["10", "9", "Z", "b", "z", "ä"]

    case.run(main)


def test_root_exists_and_can_not_be_deleted(case):
    async def main(h: Harness):
        assert await h.store.exists("/")
        assert await h.store.children("/") == []
        with pytest.raises(MetadataError):
            await h.store.delete("/")

    case.run(main)


def test_delete_removes_the_node_from_its_parent(case):
    async def main(h: Harness):
        await h.store.put("/a/b", b"", expected_version=None)
        await h.store.delete("/a/b", expected_version=0)
        assert await h.store.get("/a/b") is None
        assert await h.store.children("/a") == []
        assert await h.store.exists("/a")

    case.run(main)


def test_delete_that_can_not_be_done_says_why(case):
    async def main(h: Harness):
        await h.store.put("/a/b", b"", expected_version=None)
        with pytest.raises(NodeNotEmptyError):
            await h.store.delete("/a")
        with pytest.raises(NoSuchNodeError):
            await h.store.delete("/c")
        with pytest.raises(BadVersionError):
            await h.store.delete("/a/b", expected_version=3)
        assert await h.store.exists("/a/b")

    case.run(main)


def test_sequential_nodes_count_up_with_ten_digits(case):
    async def main(h: Harness):
        paths = [(await h.store.put("/q/n-", b"", expected_version=None, sequential=True)).path for _ in range(3)]
        assert paths == ["/q/n-0000000000", "/q/n-0000000001", "/q/n-0000000002"]
        await h.store.delete(paths[2])
        again = await h.store.put("/q/other-", b"", expected_version=None, sequential=True)
        assert again.path == "/q/other-0000000003"

    case.run(main)


def test_the_next_counter_is_told_before_it_is_used(case):
    async def main(h: Harness):
        assert await h.store.next_sequence("/q") == 0
        made = [await h.store.put("/q/n-", b"", expected_version=None, sequential=True) for _ in range(3)]
        assert await h.store.next_sequence("/q") == 3
        for one in made[1:]:
            await h.store.delete(one.path)
        assert await h.store.next_sequence("/q") == 3
        store = await h.restart()
        assert await store.next_sequence("/q") == 3
        assert (await store.put("/q/n-", b"", expected_version=None, sequential=True)).path == "/q/n-0000000003"
        assert await store.next_sequence("/q") == 4
        assert await store.next_sequence("/q/n-0000000003") == 0

    case.run(main)


def test_counters_that_are_taken_are_nobody_elses_and_leave_nothing(case):
    async def main(h: Harness):
        taken = await asyncio.gather(*(h.store.take_sequences("/q/deep", count) for count in (1, SEQUENCES_MAX, 3)))
        assert [len(each) for each in taken] == [1, SEQUENCES_MAX, 3]
        assert all(list(each) == sorted(each) for each in taken)
        together = [number for each in taken for number in each]
        assert sorted(together) == list(range(SEQUENCES_MAX + 4))
        made = await h.store.put("/q/deep/n-", b"", expected_version=None, sequential=True)
        assert int(made.path.removeprefix("/q/deep/n-")) == SEQUENCES_MAX + 4
        store = await h.restart()
        assert list(await store.take_sequences("/q/deep", 1)) == [SEQUENCES_MAX + 5]
        # What told its number goes, unawaited or with the session.
        while (left := await store.children("/q/deep")) != [made.path.rpartition("/")[2]]:
            assert len(left) <= SEQUENCES_MAX + 6

    case.run(main)


def test_no_counters_or_too_many_at_once_are_refused_with_the_number(case):
    async def main(h: Harness):
        for count in (0, -1, SEQUENCES_MAX + 1):
            with pytest.raises(MetadataError, match=f"/q: {count} counters asked for, 1 to {SEQUENCES_MAX} are taken"):
                await h.store.take_sequences("/q", count)
        assert await h.store.next_sequence("/q") == 0
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        with pytest.raises(MetadataError, match="ephemeral"):
            await h.store.take_sequences("/e", 1)

    case.run(main)


def test_what_is_read_after_a_sync_is_not_older(case):
    async def main(h: Harness):
        await h.store.put("/a", b"x", expected_version=None)
        await h.store.sync()
        assert await h.store.children("/") != []
        await h.store.close()
        with pytest.raises(UnavailableError):
            await h.store.sync()

    case.run(main)


# ---- sessions


def test_values_and_counters_survive_the_process(case):
    async def main(h: Harness):
        await h.store.put("/a/b", b"x", expected_version=None)
        first = await h.store.put("/a/s", b"", expected_version=None, sequential=True)
        await h.store.delete(first.path)
        store = await h.restart()
        node = await store.get("/a/b")
        assert node is not None
        assert node.value == b"x"
        second = await store.put("/a/s", b"", expected_version=None, sequential=True)
        assert first.path < second.path
        assert len(second.path) == len("/a/s") + 10

    case.run(main)


def test_ephemeral_node_vanishes_with_its_process(case):
    async def main(h: Harness):
        made = await h.store.put("/a/e", b"x", expected_version=None, ephemeral=True)
        assert (made.stat.is_ephemeral, made.stat.is_own) == (True, True)
        node = await h.store.get("/a/e")
        assert node is not None
        assert (node.stat.is_ephemeral, node.stat.is_own) == (True, True)
        store = await h.restart()
        assert not await store.exists("/a/e")
        assert await store.exists("/a")

    case.run(main)


def test_ephemeral_node_can_not_have_children(case):
    async def main(h: Harness):
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        with pytest.raises(MetadataError):
            await h.store.put("/e/child", b"", expected_version=None)
        with pytest.raises(MetadataError):
            await h.store.put("/e/deep/child", b"", expected_version=None, sequential=True)
        assert await h.store.children("/e") == []

    case.run(main)


def test_close_ends_the_session_and_refuses_calls(case):
    async def main(h: Harness):
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        await h.store.close()
        await h.store.close()
        with pytest.raises(UnavailableError):
            await h.store.get("/e")
        with pytest.raises(UnavailableError):
            await h.store.put("/e", b"", expected_version=None)
        store = await h.restart()
        assert not await store.exists("/e")

    case.run(main)


def test_expired_session_loses_its_ephemeral_nodes_and_a_new_one_follows(case):
    async def main(h: Harness):
        events = Inbox()
        h.store.on_session_event(events)
        await h.store.put("/e", b"", expected_version=None, ephemeral=True)
        await h.store.put("/p", b"", expected_version=None)
        await h.expire_session()
        await events.comes(SessionEvent.RECONNECTED)
        assert events.items[-2:] == [SessionEvent.EXPIRED, SessionEvent.RECONNECTED]
        assert not await h.store.exists("/e")
        assert await h.store.exists("/p")
        assert (await h.store.put("/e", b"", expected_version=None, ephemeral=True)).stat.is_own

    case.run(main)


def test_session_expiry_notifies_watchers_of_the_lost_nodes(case):
    async def main(h: Harness):
        await h.store.put("/d/e", b"", expected_version=None, ephemeral=True)
        inbox = Inbox()
        h.store.watch_node("/d/e", inbox)
        h.store.watch_children("/d", inbox)
        await h.store.get("/d/e")
        await h.expire_session()
        await inbox.has(2)
        assert sorted(inbox.kinds_and_paths()) == [("children_changed", "/d"), ("deleted", "/d/e")]

    case.run(main)


# ---- watches


def test_watch_of_a_node_hears_of_each_of_its_changes_and_of_no_other_node(case):
    async def main(h: Harness):
        inbox = Inbox()
        h.store.watch_node("/a/b", inbox)
        assert await h.store.get("/a/b") is None
        for path in ("/a", "/ab", "/a/b", "/a/b/c"):
            await h.store.put(path, b"", expected_version=None)
        await inbox.has(1)
        await h.store.put("/a/b", b"", expected_version=None)
        await inbox.has(2)
        await h.store.delete("/a/b/c")
        await h.store.delete("/a/b")
        await inbox.has(3)
        await h.store.put("/a/b", b"", expected_version=None)
        await inbox.has(4)
        kinds = ["created", "modified", "deleted", "created"]
        assert inbox.kinds_and_paths() == [(kind, "/a/b") for kind in kinds]

    case.run(main)


def test_watch_of_children_hears_who_comes_and_goes_and_of_nothing_below(case):
    async def main(h: Harness):
        inbox, deep = Inbox(), Inbox()
        h.store.watch_children("/a", inbox)
        h.store.watch_children("/a/b", deep)
        assert await h.store.children("/a") == []
        await h.store.put("/a/b", b"", expected_version=None)
        await inbox.has(1)
        await h.store.put("/a/b", b"changed", expected_version=None)
        await h.store.put("/a", b"changed", expected_version=None)
        await h.store.put("/a/b/c", b"", expected_version=None)
        await deep.has(1)
        assert len(inbox.items) == 1
        await h.store.delete("/a/b/c")
        await deep.has(2)
        await h.store.delete("/a/b")
        await inbox.has(2)
        assert inbox.kinds_and_paths() == [("children_changed", "/a")] * 2
        # The end of a node may be told to those who listen to its children.
        assert set(deep.kinds_and_paths()) == {("children_changed", "/a/b")}

    case.run(main)


def test_who_reads_again_after_each_notification_misses_no_change(case):
    async def main(h: Harness):
        seen, told = [], asyncio.Event()
        h.store.watch_node("/a", lambda _: told.set())
        h.store.watch_children("/c", lambda _: told.set())

        async def change():
            for i in range(40):
                await h.store.put("/a", str(i).encode(), expected_version=None)
                await h.store.put(f"/c/{i}", b"", expected_version=None)

        changing = asyncio.ensure_future(change())
        while True:
            await told.wait()
            told.clear()
            node, children = await h.store.get("/a"), await h.store.children("/c")
            seen.append((b"" if node is None else node.value, len(children)))
            if seen[-1] == (b"39", 40):
                break
        await changing

    case.run(main)


def test_failed_write_notifies_nobody(case):
    async def main(h: Harness):
        node, children = Inbox(), Inbox()
        await h.store.put("/a", b"", expected_version=None)
        h.store.watch_node("/a", node)
        h.store.watch_children("/", children)
        await h.store.get("/a")
        with pytest.raises(BadVersionError):
            await h.store.put("/a", b"", expected_version=9)
        await h.store.put("/b", b"", expected_version=None)
        await children.has(1)
        assert node.items == []

    case.run(main)


def test_unsubscribed_watch_hears_nothing(case):
    async def main(h: Harness):
        inbox, other = Inbox(), Inbox()
        unsubscribe = h.store.watch_node("/a", inbox)
        h.store.watch_node("/a", other)
        unsubscribe()
        unsubscribe()
        await h.store.put("/a", b"", expected_version=None)
        await other.has(1)
        assert inbox.items == []

    case.run(main)


def test_path_that_nobody_watches_any_more_can_be_watched_again(case):
    async def main(h: Harness):
        inbox = Inbox()
        for _ in range(3):
            h.store.watch_node("/a", inbox)()
            h.store.watch_children("/c", inbox)()
        again = Inbox()
        h.store.watch_node("/a", again)
        h.store.watch_children("/c", again)
        await h.store.put("/a", b"", expected_version=None)
        await h.store.put("/c/1", b"", expected_version=None)
        await again.has(2)
        assert sorted(again.kinds_and_paths()) == [("children_changed", "/c"), ("created", "/a")]
        assert inbox.items == []

    case.run(main)
