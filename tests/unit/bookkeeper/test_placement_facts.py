"""What placement goes by, looked up in the background; and the picture of storage that grows."""

from __future__ import annotations

import json
from functools import partial

import pytest

from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.placement_facts import LOAD_REFRESH_S, RACKS_REFRESH_S
from geminga.metadata import MetadataFaults
from geminga.model.bookie_port import BookieInfo
from geminga.model.errors import DiskIOError, NotEnoughBookiesError, StorageError
from geminga.runtime import delay
from geminga.wire.bookkeeper.isolation import IsolationGroups, encode_isolation, group_names
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT
from support.worlds.ledgers import Appends, Cluster, payloads, run_cluster, turn


async def racks_are(cluster: Cluster, racks: dict[str, str], group: str = "default") -> None:
    value = {group: {name: {"rack": rack, "hostname": name} for name, rack in racks.items()}}
    await cluster.store().put("/bookies", json.dumps(value).encode(), expected_version=None)


async def ensembles(cluster: Cluster, config: BookKeeperConfig, count: int = 12, size: int = 2) -> list[set[str]]:
    client = cluster.client(config=config)
    made = []
    for _ in range(count):
        handle = await client.create_ledger(ensemble_size=size, write_quorum=size, ack_quorum=1)
        made.append({*handle.metadata.last_fragment.ensemble})
    return made


def told(refused: pytest.ExceptionInfo[NotEnoughBookiesError]) -> str:
    """What clients are told beside that it is too little: no names of bookies."""
    begin, _, cause = refused.value.told.partition(": ")
    assert begin == "Too little storage is available now"
    return cause


async def placed(cluster: Cluster, client: BookKeeper, ledgers: int) -> dict[str, int]:
    """How many of so many ledgers of one copy each bookie gets."""
    counts = dict.fromkeys(cluster.bookies, 0)
    for _ in range(ledgers):
        handle = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        counts[handle.metadata.last_fragment.ensemble[0]] += 1
    return counts


def test_first_ledger_is_spread_over_the_racks_already():
    async def main(cluster: Cluster):
        await racks_are(cluster, {"b0": "/a", "b1": "/a", "b2": "/a", "b3": "/b"})
        for made in await ensembles(cluster, BookKeeperConfig()):
            assert "b3" in made
        assert any("b3" not in made for made in await ensembles(cluster, BookKeeperConfig(is_rack_aware=False)))

    run_cluster(main, bookies=4)


def test_racks_that_are_enforced_and_can_not_be_had_say_so():
    async def main(cluster: Cluster):
        await racks_are(cluster, {"b0": "/a", "b1": "/a"})
        config = BookKeeperConfig(is_racks_min_enforced=True)
        with pytest.raises(NotEnoughBookiesError, match="2 racks, which can not be had of") as refused:
            await ensembles(cluster, config)
        assert told(refused) == "each entry is to have copies in 2 racks, and bookies that can be written to are in /a"
        # b2 has no rack that anybody told: it is not used where racks are enforced.
        with pytest.raises(NotEnoughBookiesError, match="b2 left out") as refused:
            await ensembles(cluster, config, size=3)
        assert (
            told(refused)
            == "3 bookies are needed that can be written to, 3 can, and 2 of them are in a rack that is known"
        )
        assert await ensembles(cluster, BookKeeperConfig(), count=1)

    run_cluster(main, bookies=3)


def test_groups_keep_ledgers_apart_and_the_second_ones_help_out():
    async def main(cluster: Cluster):
        value = {"mine": {"b0": {}, "b1": {}}, "spare": {"b2": {}}, "other": {"b3": {}, "b4": {}}}
        await cluster.store().put("/bookies", json.dumps(value).encode(), expected_version=None)
        config = BookKeeperConfig(isolation_groups=("mine",), secondary_isolation_groups=("spare",))
        assert await ensembles(cluster, config, count=3) == [{"b0", "b1"}] * 3
        assert await ensembles(cluster, config, count=1, size=3) == [{"b0", "b1", "b2"}]
        cluster.bookies["b1"].is_writable = False
        assert await ensembles(cluster, config, count=1) == [{"b0", "b2"}]
        with pytest.raises(NotEnoughBookiesError, match="b3, b4 left out by isolation groups"):
            await ensembles(cluster, config, size=3)
        # One bookie alone that may not be used is not used either.
        for name in ("b0", "b2", "b3"):
            cluster.bookies[name].is_writable = False
        with pytest.raises(NotEnoughBookiesError) as refused:
            await ensembles(cluster, config, size=1)
        assert told(refused) == (
            "1 bookie is needed that can be written to, 1 can, and 0 of them are in the groups mine, spare"
        )
        cluster.bookies["b4"].is_writable = False
        with pytest.raises(NotEnoughBookiesError) as refused:
            await ensembles(cluster, config)
        assert told(refused) == "2 bookies are needed that can be written to, 0 can"

    run_cluster(main, bookies=5)


def within(primary: str, secondary: str = "") -> dict[str, bytes]:
    return {META_PLACEMENT: encode_isolation(IsolationGroups(group_names(primary), group_names(secondary)))}


async def groups_are(cluster: Cluster, **groups: str) -> None:
    value = {group: {name: {} for name in names.split()} for group, names in groups.items()}
    await cluster.store().put("/bookies", json.dumps(value).encode(), expected_version=None)


@pytest.mark.parametrize("config", [BookKeeperConfig(), BookKeeperConfig(is_rack_aware=False)])
def test_ledgers_that_say_their_groups_are_on_their_bookies_and_the_others_on_any(config):
    async def main(cluster: Cluster):
        await groups_are(cluster, mine="b0 b1", spare="b2", other="b3 b4")
        client = cluster.client(config=config)

        async def ensemble(custom: dict[str, bytes], size: int = 2) -> set[str]:
            handle = await client.create_ledger(
                ensemble_size=size, write_quorum=size, ack_quorum=1, custom_metadata=custom
            )
            return {*handle.metadata.last_fragment.ensemble}

        seen: set[str] = set()
        for _ in range(8):
            seen |= await ensemble({})
        assert seen == {*cluster.bookies}
        for _ in range(4):
            assert await ensemble(within("mine", "spare")) == {"b0", "b1"}
            assert await ensemble(within("mine,other"), 4) == {"b0", "b1", "b3", "b4"}
        assert await ensemble(within("mine", "spare"), 3) == {"b0", "b1", "b2"}
        assert len(await ensemble(within("*"), 5)) == 5
        for custom, size in ((within("mine"), 3), (within("nobody"), 1), (within(""), 1)):
            with pytest.raises(NotEnoughBookiesError, match="b3, b4 left out by isolation groups"):
                await ensemble(custom, size)
        # What is said in words of others is passed over, as in Pulsar.
        for value in (b"{", b"[]", b'{"policyClass":"x"}', within("mine")[META_PLACEMENT].replace(b"properties", b"p")):
            assert len(await ensemble({META_PLACEMENT: value}, 5)) == 5
        for name in ("b0", "b1", "b2", "b3"):
            cluster.bookies[name].is_writable = False
        # One bookie alone that may not be used is not used either.
        with pytest.raises(NotEnoughBookiesError):
            await ensemble(within("mine"), 1)
        assert await ensemble({}, 1) == {"b4"}

    run_cluster(main, bookies=5)


def test_groups_that_change_hold_from_the_next_ledger_on():
    async def main(cluster: Cluster):
        await groups_are(cluster, mine="b0 b1", other="b2")
        client = cluster.client()
        for mine, other in (("b0", "b1 b2"), ("b2", "b0 b1"), ("b1", "b2 b0")):
            await groups_are(cluster, mine=mine, other=other)
            await turn(4)
            handle = await client.create_ledger(
                ensemble_size=1, write_quorum=1, ack_quorum=1, custom_metadata=within("mine")
            )
            assert handle.metadata.last_fragment.ensemble == (mine,)

    run_cluster(main)


def test_whoever_replaces_a_bookie_keeps_to_the_groups_of_the_ledger():
    async def main(cluster: Cluster):
        await groups_are(cluster, mine="b0 b1 b2", other="b3 b4 b5 b6")
        writer = await cluster.client().create_ledger(
            ensemble_size=2, write_quorum=2, ack_quorum=2, custom_metadata=within("mine")
        )
        appends = Appends(writer)
        assert await appends.append_and_wait(*payloads(0, 3)) is None
        first, second = writer.metadata.last_fragment.ensemble
        cluster.bookies[first].fail(DiskIOError("broken"))
        assert await appends.append_and_wait(*payloads(3, 1)) is None
        (third,) = {"b0", "b1", "b2"} - {first, second}
        assert {*writer.metadata.last_fragment.ensemble} == {second, third}
        # So does who recovers it in a process that has read nothing of groups yet.
        cluster.bookies[first].fail(None)
        cluster.bookies[third].fail(DiskIOError("broken"))
        recovered = await cluster.client().open_ledger(writer.ledger_id)
        assert {*recovered.metadata.last_fragment.ensemble} == {first, second}

    run_cluster(main, bookies=7)


def test_racks_that_change_or_can_not_be_read():
    async def main(cluster: Cluster):
        await racks_are(cluster, {"b0": "/a", "b1": "/a", "b2": "/b"})
        client = cluster.client()

        async def made() -> set[str]:
            handle = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=1)
            return {*handle.metadata.last_fragment.ensemble}

        assert "b2" in await made()
        await cluster.store().put("/bookies", b"no JSON", expected_version=None)
        await delay(1000 * RACKS_REFRESH_S + 1)
        for _ in range(3):
            assert "b2" in await made(), "what was known is forgotten because of damage"
        await racks_are(cluster, {"b0": "/b", "b1": "/a", "b2": "/a"})
        await delay(1000 * RACKS_REFRESH_S + 1)
        assert "b0" in await made()

    run_cluster(main)


def test_store_that_does_not_answer_costs_no_ledger():
    async def main(cluster: Cluster):
        env = LedgerEnvironment(cluster.runtime, cluster.store(MetadataFaults()), cluster.pool, BookKeeperConfig())
        await env._metadata.close()
        assert len(await env.new_ensemble(2, 2, {})) == 2

    run_cluster(main)


def test_room_is_asked_for_in_the_background_again_and_again():
    async def main(cluster: Cluster):
        asked: list[str] = []
        free = {"b0": 10, "b1": 30, "b2": 0}

        def tells(name):
            def read_info(*, done):
                asked.append(name)
                done(DiskIOError("x") if name == "b2" else BookieInfo(100, free[name]))

            return read_info

        for name, bookie in cluster.bookies.items():
            bookie.read_info = tells(name)  # type: ignore[method-assign]
        config = BookKeeperConfig(is_placement_weighted=True, bookie_info_interval_s=1000)
        client = cluster.client(config=config)
        cluster.bookies["b2"].is_writable = False

        got = partial(placed, cluster, client)

        assert (await got(40))["b1"] in range(28, 33)
        assert asked == ["b0", "b1"]
        cluster.bookies["b2"].is_writable = True
        await got(1)
        await got(1)
        assert asked == ["b0", "b1", "b2"], "a bookie that failed is asked with each ledger"
        await delay(1000 * LOAD_REFRESH_S + 1)
        await got(1)
        assert asked[3:] == ["b0", "b1"], "one that failed rests for longer"
        await delay(31_000)
        await got(1)
        assert sorted(asked[5:]) == ["b0", "b1", "b2"]

    run_cluster(main)


def test_a_single_bookie_is_not_asked():
    async def main(cluster: Cluster):
        for bookie in cluster.bookies.values():
            bookie.read_info = None  # type: ignore[assignment, method-assign]
        for name in ("b1", "b2"):
            cluster.bookies[name].is_writable = False
        await ensembles(cluster, BookKeeperConfig(is_placement_weighted=True), count=2, size=1)

    run_cluster(main)


def test_what_is_written_to_bookies_by_whomever_is_asked_for_and_counts():
    async def main(cluster: Cluster):
        added = {"b0": 0, "b1": 0, "b2": None}

        def tells(name):
            return lambda *, done: done(BookieInfo(100, 100, added[name]))

        for name, bookie in cluster.bookies.items():
            bookie.read_info = tells(name)  # type: ignore[method-assign]
        client = cluster.client()

        got = partial(placed, cluster, client)

        assert await got(30) == dict.fromkeys(cluster.bookies, 10)
        await delay(1000 * LOAD_REFRESH_S + 1)
        added |= {"b0": 3000 << 20, "b1": 0}
        await got(1)
        await turn(2)
        busy = await got(60)
        assert busy["b0"] * 1.8 < busy["b2"] < busy["b1"], "the mean of those that tell is that of who does not"
        # Started anew, it counts from 0; and from then on nothing is written to it.
        for _ in range(2):
            await delay(1000 * LOAD_REFRESH_S + 1)
            added["b0"] = 10
            await got(1)
            await turn(2)
        even = await got(60)
        assert max(even.values()) - min(even.values()) <= 2

    run_cluster(main)


def test_storage_that_grows_is_used_at_once_and_nothing_moves():
    """Five bookies hold segments; two join: the next segment lies on them, others too; what is stored stays."""

    async def main(cluster: Cluster):
        client = cluster.client()
        joining = {name: cluster.bookies[name] for name in ("b5", "b6")}
        cluster.pool.unavailable.update(joining)

        async def segment() -> Appends:
            handle = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            appends = Appends(handle)
            assert await appends.append_and_wait(*payloads(0, 5)) is None
            return appends

        old = [await segment() for _ in range(10)]
        for appends in old:
            await appends.handle.close()
        await turn(2)
        stored = {name: {i: b.entry_ids(i) for i in b.ledger_ids()} for name, b in cluster.bookies.items()}
        assert stored["b5"] == stored["b6"] == {}
        cluster.pool.unavailable.clear()
        came: list[str] = []
        for number in range(7):
            appends = await segment()
            ensemble = appends.handle.metadata.last_fragment.ensemble
            assert len({*ensemble}) == 3
            assert number or {"b5", "b6"} < {*ensemble}, "the first has both"
            came += ensemble
        assert {came.count(name) for name in cluster.bookies} <= {2, 3, 4}, "and then all take turns"
        await turn(2)
        for name, ledgers in stored.items():
            for ledger_id, entry_ids in ledgers.items():
                assert cluster.bookies[name].entry_ids(ledger_id) == entry_ids
        for appends in old:
            reader = await client.open_ledger(appends.handle.ledger_id)
            assert reader.metadata.fragments == appends.handle.metadata.fragments
            assert list(await reader.read_entries(0, 4)) == payloads(0, 5)
        assert min(len(cluster.bookies[name].ledger_ids()) for name in ("b5", "b6")) > 1

    run_cluster(main, bookies=7)


def test_bookie_that_joined_and_refuses_does_not_hold_up_every_ledger():
    async def main(cluster: Cluster):
        client = cluster.client()
        cluster.pool.unavailable.add("b3")
        for _ in range(12):
            await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        cluster.pool.unavailable.clear()
        cluster.bookies["b3"].add_error = StorageError("not now")
        tried = 0
        for _ in range(12):
            handle = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
            tried += "b3" in handle.metadata.last_fragment.ensemble
            assert await Appends(handle).append_and_wait(b"x") is None
            assert "b3" not in handle.metadata.last_fragment.ensemble
        assert tried == 1

    run_cluster(main, bookies=4)
