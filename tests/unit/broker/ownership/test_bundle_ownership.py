"""Bundles acquired, lost and given away on a metadata store that misbehaves at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from geminga.broker.ownership import bundle_ownership, questions
from geminga.broker.ownership.bundle_ownership import ROUND_MS
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles, whole
from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.ownership.namespace_bundles import BUNDLES_AGE_MS_MAX
from geminga.broker.ownership.owner_nodes import ENDING_HERE, LETTING_GO, OWNERS_AGE_MS_MAX
from geminga.broker.ownership.ports import HERE, Unknown, is_served_here
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import CorruptionError, MetadataError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import set_strict, wait_ms
from support.clusters.bundle_owners import NAMESPACE, ONE, Owning
from support.clusters.owning_pair import BUNDLE, NEXT, PATH, Pair, run_pair, topic_names, url
from support.house.weekly_sample import sampled


def hold_topics_open(one: Owning) -> tuple[asyncio.Event, asyncio.Event]:
    """Of a bundle that it lets go: the first is set when it begins to close them, and they are closed by the second."""
    closing, closed = asyncio.Event(), asyncio.Event()

    async def close(_: object) -> None:
        closing.set()
        await closed.wait()

    one.told.taken = close  # type: ignore[method-assign]
    return closing, closed


@pytest.mark.parametrize("seed", sampled("bundle ownership", range(5), 2))
def test_of_two_that_acquire_at_once_one_has_it_and_the_other_says_so(seed):
    async def story(pair: Pair):
        for store in pair.stores.values():
            store.faults.delay_ms_max = 20
        asked = [one.ask(is_authoritative=True) for one in (pair.a, pair.b) for _ in range(3)]
        answers = await asyncio.gather(*asked)
        winner = pair.owner()
        assert winner is not None
        for answer in answers[:3] if winner == "a" else answers[3:]:
            assert answer is HERE
        for answer in answers[3:] if winner == "a" else answers[:3]:
            assert url(answer) == f"pulsar://{winner}:6650"
        assert sorted([pair.a.told.words, pair.b.told.words]) == [[], ["given"]]

    run_pair(story, seed)


def test_what_nobody_owns_goes_where_it_is_placed_unless_asked_with_authority():
    async def story(pair: Pair):
        pair.a.placed = NEXT
        assert await pair.a.ask() == NEXT
        assert pair.owner() is None
        assert await pair.b.ask(is_authoritative=True) is HERE
        assert url(await pair.a.ask()) == "pulsar://b:6650"

    run_pair(story)


def test_a_namespace_that_is_not_there_has_no_owner():
    async def story(pair: Pair):
        found = await pair.a.ask(TopicName.parse("public/none/one"), is_authoritative=True)
        assert found == Unknown("there is no namespace public/none")
        assert pair.server.tree.children("/namespace") == []
        assert not pair.server.tree.exists(local_policies_path("public/none"))

    run_pair(story)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_a_write_without_an_answer_is_settled_by_reading(fault):
    async def story(pair: Pair):
        await pair.b.ask(TopicName.parse("two"))
        store = pair.stores["a"]
        store.faults.next_writes.append(fault)
        assert await pair.a.ask() is HERE
        assert pair.owner() == "a"
        # Marked as being unloaded, and taken away.
        store.faults.next_writes.extend([fault, fault])
        await pair.a.ownership.release([BUNDLE])
        assert pair.owner() is None
        assert not pair.server.tree.exists(PATH)

    run_pair(story)


@pytest.mark.parametrize("after_ms", [0, 30, 60, 90, 120, 140])
def test_a_session_that_ends_while_a_node_is_made_leaves_nothing_owned(after_ms):
    async def story(pair: Pair):
        store = pair.stores["a"]
        await pair.a.ask(TopicName.parse("two"))
        store.faults.delay_ms_max = 100
        asked = asyncio.ensure_future(pair.a.ask())
        while not pair.server.tree.exists(PATH):
            await pair.world.sleep(0.001)
        await pair.world.sleep(after_ms / 1000)
        assert not asked.done(), "the session was to end before"
        store.expire_session(outage_ms=60_000)
        try:
            assert isinstance(await asked, Unknown)
        except MetadataError:
            pass  # nobody can tell
        assert BUNDLE not in pair.a.ownership.owned
        assert "given" not in pair.a.told.words
        assert await pair.b.ask(is_authoritative=True) is HERE

    run_pair(story)


def test_a_node_of_this_session_that_nobody_knows_of_is_taken_up():
    async def story(pair: Pair):
        await pair.stores["a"].put(PATH, b"{}", expected_version=-1, ephemeral=True)
        pair.a.placed = NEXT
        assert await pair.a.ask() is HERE
        assert url(await pair.b.ask()) == "pulsar://a:6650"

    run_pair(story)


def test_while_it_lets_go_nobody_is_served_and_the_next_begins_afterwards():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        closing, closed = hold_topics_open(pair.a)
        releasing = asyncio.ensure_future(pair.a.ownership.release([BUNDLE]))
        again = asyncio.ensure_future(pair.a.ownership.release([BUNDLE]))
        await closing.wait()
        for one, said in (pair.a, ENDING_HERE), (pair.b, LETTING_GO):
            assert await one.ask(is_authoritative=True) == said
        closed.set()
        await asyncio.gather(releasing, again)
        assert await pair.b.ask(is_authoritative=True) is HERE

    run_pair(story)


def test_a_release_whose_request_is_called_off_is_finished():
    """Who waited for it, as a stop does, waited for ever; the bundle was nobody's until the session ended."""

    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        closing, closed = hold_topics_open(pair.a)
        asked = asyncio.ensure_future(pair.a.ownership.release([BUNDLE]))
        await closing.wait()
        again = asyncio.ensure_future(pair.a.ownership.release([BUNDLE]))
        asked.cancel()
        await asyncio.wait([asked])
        closed.set()
        async with asyncio.timeout(60):
            await again
        assert await pair.b.ask(is_authoritative=True) is HERE

    run_pair(story)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_breaks_while_topics_are_closed_keeps_no_bundle(is_lost):
    async def story(pair: Pair):
        set_strict(asyncio.get_running_loop(), False)
        assert await pair.a.ask() is HERE

        async def breaks(_: object) -> None:
            raise RuntimeError("nobody thought of it")

        pair.a.told.taken = breaks  # type: ignore[method-assign]
        if is_lost:
            pair.take_node()
            await wait_ms(2 * ROUND_MS)
        else:
            await asyncio.wait([asyncio.ensure_future(pair.a.ownership.release([BUNDLE]))])
        assert [text.rpartition(": ")[2] for text in pair.a.broken] == ["nobody thought of it"]
        async with asyncio.timeout(60):
            await pair.a.ownership.release([BUNDLE])
        assert await pair.b.ask(is_authoritative=True) is HERE
        await pair.b.ownership.release([BUNDLE])
        assert await pair.a.ask(is_authoritative=True) is HERE

    run_pair(story)


def test_whose_a_lost_bundle_is_now_is_said_while_its_topics_are_still_being_closed():
    """One of them may wait for the policies of another, which are where the bundle went."""

    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        closing, closed = hold_topics_open(pair.a)
        pair.take_node()
        await closing.wait()
        assert await pair.a.ask() == ENDING_HERE, "it is not taken back before they are closed"
        pair.a.placed = NEXT
        assert await pair.a.ask() is NEXT
        assert await pair.a.ask(is_authoritative=True) == ENDING_HERE
        assert await pair.b.ask(is_authoritative=True) is HERE
        assert url(await pair.a.ask()) == "pulsar://b:6650"
        assert url(await pair.a.ask(is_authoritative=True)) == "pulsar://b:6650"
        await pair.stores["a"].close()
        assert await pair.a.ask() == ENDING_HERE
        closed.set()

    run_pair(story)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_bundle_that_was_taken_away_is_served_no_more(is_told):
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.stores["a"].faults.watch_lost_percent = 0 if is_told else 100
        pair.take_node()
        assert await pair.b.ask(is_authoritative=True) is HERE
        await pair.world.sleep(0.1 if is_told else ROUND_MS / 1000 + 0.1)
        assert pair.a.ownership.owned == []
        assert pair.a.told.words == ["given", "taken"]
        assert url(await pair.a.ask()) == "pulsar://b:6650"

    run_pair(story)


@pytest.mark.parametrize("is_rightly", [True, False])
def test_a_fence_that_was_met_has_the_node_read_again_before_anything_is_opened(is_rightly):
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.stores["a"].faults.watch_lost_percent = 100
        if is_rightly:
            pair.take_node()
            assert await pair.b.ask(is_authoritative=True) is HERE
        assert await pair.a.ask() is HERE
        pair.a.ownership.doubt(ONE)
        owner = await pair.a.ask()
        await pair.world.sleep(0.1)
        if not is_rightly:
            assert owner is HERE
            assert pair.a.told.words == ["given"]
            return
        assert owner is not HERE
        assert pair.a.told.words == ["given", "taken"]
        assert url(await pair.a.ask()) == "pulsar://b:6650"

    run_pair(story)


def test_after_a_fence_nothing_is_opened_while_nobody_can_read_the_node():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        await pair.stores["a"].close()
        pair.a.ownership.doubt(ONE)
        assert isinstance(await pair.a.ask(), Unknown)
        assert pair.a.ownership.owned == [BUNDLE]

    run_pair(story)


def test_news_of_other_things_and_damage_elsewhere_keep_no_round_from_coming():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.a.known.add("public/broken")
        broken = TopicName.parse("public/broken/one")
        assert await pair.a.ask(broken) is HERE
        store, path = pair.stores["b"], local_policies_path("public/broken")
        lost = pair.stores["a"].faults
        lost.watch_lost_percent = 100
        pair.take_node()
        lost.watch_lost_percent = 0
        for _ in range(2 * ROUND_MS // 1000):
            await store.put(path, b"what", expected_version=None)
            await pair.world.sleep(1)
        assert [bundle.namespace for bundle in pair.a.ownership.owned] == ["public/broken"]
        with pytest.raises(CorruptionError, match=path):
            await pair.a.ask(broken)

    run_pair(story)


def test_a_release_takes_away_nothing_of_the_next_owner():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.stores["a"].faults.watch_lost_percent = 100
        pair.take_node()
        assert await pair.b.ask(is_authoritative=True) is HERE
        await pair.a.ownership.release([BUNDLE])
        assert pair.owner() == "b"
        assert pair.a.told.words == ["given", "taken"]

    run_pair(story)


def test_a_late_word_of_a_node_of_before_changes_nothing():
    async def story(pair: Pair):
        store = pair.stores["a"]
        store.faults.watch_late_percent, store.faults.watch_twice_percent = 100, 100
        for _ in range(3):
            assert await pair.a.ask() is HERE
            await pair.a.ownership.release([BUNDLE])
        assert await pair.a.ask() is HERE
        await pair.world.sleep(30)
        assert pair.a.ownership.owned == [BUNDLE]
        assert pair.a.told.words[-1] == "given"

    run_pair(story)


def test_an_owner_that_was_not_heard_of_is_read_again():
    async def story(pair: Pair):
        assert await pair.b.ask() is HERE
        assert url(await pair.a.ask()) == "pulsar://b:6650"
        pair.stores["a"].faults.watch_lost_percent = 100
        await pair.b.ownership.release([BUNDLE])
        assert url(await pair.a.ask()) == "pulsar://b:6650"
        await pair.world.sleep(OWNERS_AGE_MS_MAX / 1000)
        assert await pair.a.ask() is HERE

    run_pair(story)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_bundle_that_its_namespace_is_not_cut_into_any_more_is_released(is_told):
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.stores["a"].faults.watch_lost_percent = 0 if is_told else 100
        await pair.cut(equal_bundles(NAMESPACE, 8))
        await pair.world.sleep(0.1 if is_told else (ROUND_MS + BUNDLES_AGE_MS_MAX) / 1000 + 0.1)
        assert pair.a.ownership.owned == []
        assert not pair.server.tree.exists(PATH)
        assert await pair.a.ask() is HERE
        assert [bundle.upper - bundle.lower for bundle in pair.a.ownership.owned] == [1 << 29]

    run_pair(story)


def test_who_lets_go_of_a_deleted_namespace_s_last_bundle_leaves_nothing_it_hung_on():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        pair.a.known.clear()
        await pair.stores["b"].delete(local_policies_path(NAMESPACE))
        await pair.world.sleep((ROUND_MS + BUNDLES_AGE_MS_MAX) / 1000 + 0.1)
        assert pair.a.ownership.owned == []
        assert not pair.server.tree.exists(PATH)
        assert not pair.server.tree.exists(f"/namespace/{NAMESPACE}")
        assert pair.server.tree.exists("/namespace")

    run_pair(story)


def test_a_bundle_of_a_cut_of_before_is_not_acquired():
    async def story(pair: Pair):
        pair.a.placed = NEXT
        assert await pair.a.ask() == NEXT
        pair.stores["a"].faults.watch_lost_percent = 100
        await pair.cut(whole(NAMESPACE))
        assert isinstance(await pair.a.ask(is_authoritative=True), Unknown)
        assert not pair.server.tree.exists(PATH)

    run_pair(story)


def test_without_the_metadata_store_what_is_served_is_served_on_and_nothing_new_is_owned():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        store = pair.stores["a"]
        await store.close()
        await pair.world.sleep(60)
        assert await pair.a.ask() is HERE
        with pytest.raises(Exception, match="closed"):
            await pair.a.ask(next(name for name in topic_names() if not BUNDLE.has(name)))

    run_pair(story)


def test_a_predecessor_at_the_same_address_is_waited_for():
    async def story(pair: Pair):
        value = (
            b'{"nativeUrl":"pulsar://a:6650","httpUrl":"http://a:8080","httpUrlTls":"https://a:8443","disabled":false}'
        )
        await pair.stores["b"].put(PATH, value, expected_version=-1, ephemeral=True)
        found = await pair.a.ask(is_authoritative=True)
        assert isinstance(found, Unknown)
        assert "session of this broker that is over" in found.why
        pair.server.end_session(pair.stores["b"].session, 0)
        assert await pair.a.ask() is HERE

    run_pair(story)


def test_damage_is_told_and_nothing_is_taken_over():
    async def story(pair: Pair):
        await pair.stores["b"].put(PATH, b"what", expected_version=-1)
        with pytest.raises(CorruptionError, match=PATH):
            await pair.a.ask(is_authoritative=True)
        assert pair.server.tree.get(PATH).value == b"what"

    run_pair(story)


def test_limits_are_held_and_told(monkeypatch):
    monkeypatch.setattr(bundle_ownership, "OWN_BUNDLES_MAX", 2)
    monkeypatch.setattr(questions, "QUESTIONS_MAX", 3)

    async def story(pair: Pair):
        one_each: dict[Bundle, TopicName] = {}
        for name in topic_names():
            one_each.setdefault(equal_bundles(NAMESPACE, 4).find(name), name)
        answers = [await pair.a.ask(name) for name in one_each.values()]
        assert answers[:2] == [HERE, HERE]
        assert all(isinstance(answer, Unknown) and "and no more" in answer.why for answer in answers[2:])
        answers = await asyncio.gather(*(pair.b.ask(name) for name in one_each.values()))
        assert any(isinstance(answer, Unknown) and "too many bundles at once" in answer.why for answer in answers)

    run_pair(story)


def test_a_broker_that_closes_lets_go_and_acquires_nothing():
    async def story(pair: Pair):
        assert await pair.a.ask() is HERE
        await pair.a.ownership.close()
        assert pair.a.told.words == ["given", "taken"]
        assert await pair.a.ask(is_authoritative=True) == Unknown("this broker is closing")
        assert await pair.b.ask() is HERE

    run_pair(story)


def test_all_that_a_broker_owns_is_released_at_once_by_one_word():
    async def story(pair: Pair):
        for name in topic_names():
            assert await pair.a.ask(name) is HERE
        words: list[str] = []

        async def taken(topics: Callable[[TopicName], bool]) -> None:
            words.append("".join("+" if topics(name) else "-" for name in topic_names()))

        pair.a.told.taken = taken  # type: ignore[method-assign]
        await asyncio.gather(pair.a.ownership.release(pair.a.ownership.owned), pair.a.ownership.close())
        assert words == ["+" * len(topic_names())]
        assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == []

    run_pair(story)


def test_nobody_waits_for_a_table_whose_owner_waits_for_who_asks():
    """A broker that lets go waits for its loads, and they read policies and snapshots: for half a minute, in vain."""

    async def story(pair: Pair):
        name = topic_names()[0]
        assert await is_served_here(pair.a.ownership, name)
        told: list[str] = []

        async def taken(topics: Callable[[TopicName], bool]) -> None:
            with pytest.raises(UnavailableError, match="can not be read now: its bundle is being unloaded"):
                await is_served_here(pair.a.ownership, name)
            told.append("refused")

        pair.a.told.taken = taken  # type: ignore[method-assign]
        await pair.a.ownership.release(pair.a.ownership.owned)
        assert told == ["refused"]
        assert await pair.b.ask(name) is HERE
        # To wait for another broker's topic ends.
        assert not await is_served_here(pair.a.ownership, name)

    run_pair(story)


def test_what_is_released_in_groups_is_released_to_the_last(monkeypatch):
    monkeypatch.setattr(bundle_ownership, "WRITES_AT_ONCE", 1)

    async def story(pair: Pair):
        for name in topic_names():
            assert await pair.a.ask(name) is HERE
        assert len(pair.a.ownership.owned) == 4
        await pair.a.ownership.release(pair.a.ownership.owned)
        assert pair.a.ownership.owned == []
        assert pair.server.tree.children(f"/namespace/{NAMESPACE}") == []

    run_pair(story)


def test_a_round_that_breaks_is_not_the_last():
    async def story(pair: Pair):
        set_strict(asyncio.get_running_loop(), False)
        assert await pair.a.ask(is_authoritative=True) is HERE
        pair.a.policies_error = RuntimeError("nobody thought of it")
        await pair.stores["b"].delete(local_policies_path(NAMESPACE), expected_version=None)
        await wait_ms(BUNDLES_AGE_MS_MAX + 2 * ROUND_MS)
        assert pair.a.broken == ["a round of bundles: nobody thought of it"] * len(pair.a.broken) != []
        # Bundles are looked at in the same round, and later.
        pair.take_node()
        await wait_ms(ROUND_MS)
        assert pair.a.told.words == ["given", "taken"]
        pair.a.policies_error = None
        pair.a.known.clear()
        assert await pair.a.ask(is_authoritative=True) is not HERE

    run_pair(story)
