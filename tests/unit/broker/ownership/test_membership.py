"""Brokers that register, see each other and elect one of them, on a store that loses watches and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga import sim
from geminga.broker.core.coercion import encode_document
from geminga.broker.ownership.core.broker_data import (
    LEADER_PATH,
    Leader,
    broker_path,
    registration,
)
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles
from geminga.broker.ownership.core.choosing import FewestBundles
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.leader_election import LeaderElection
from geminga.broker.ownership.live_brokers import LiveBrokers
from geminga.broker.ownership.membership import Membership
from geminga.broker.ownership.placement import CHOICE_MS, LeaderPlacement
from geminga.broker.ownership.ports import HERE, Elsewhere, Unknown
from geminga.broker.ownership.registration import WAIT_MARGIN_S, BrokerRegistration
from geminga.broker.ownership.rounds import RETRY_MS, ROUND_MS, Rounds
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.metadata.core.faults import WriteFault
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import ConflictError
from geminga.runtime import Runtime, set_strict, wait_ms

SESSION_MS = 6000
BUNDLES = equal_bundles("t/n", 16).all()


class Member:
    """One broker's part in the cluster."""

    def __init__(self, cluster: Cluster, name: str, faults: MetadataFaults | None = None) -> None:
        self.id = f"{name}:8080"
        self.store = MemoryMetadataStore(cluster.runtime, cluster.server, faults)
        self.registration = BrokerRegistration(self.store, SESSION_MS, self.id)
        self.brokers = LiveBrokers(self.store)
        self.election = LeaderElection(self.store, Leader(self.id, f"http://{self.id}"))
        self.placement = LeaderPlacement(self.id, self.brokers, self.election, FewestBundles(), cluster.runtime.clock)
        owner = OwnerData(OwnerListener(f"pulsar://{name}:6650", "", f"http://{self.id}"), {})
        self.value = encode_document(registration(self.id, owner, version="1", started_ms=1))

    async def join(self) -> Member:
        await self.registration.begin(self.value)
        await self.brokers.start()
        self.election.start()
        return self

    async def leave(self) -> None:
        await self.registration.end()
        await self.election.close()
        await self.brokers.close()
        await self.store.close()

    @property
    def sees(self) -> list[str]:
        return [broker.broker_id[0] for broker in self.brokers.all]

    async def place(self, bundle: Bundle) -> str:
        owner = await self.placement(bundle)
        if owner is HERE:
            return self.id[0]
        assert isinstance(owner, Elsewhere)
        assert not owner.is_owner
        name = owner.endpoints.default.web_url.removeprefix("http://")[0]
        return name if owner.is_chosen else f"ask {name}"


class Cluster:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = MemoryMetadata()

    async def member(self, name: str, faults: MetadataFaults | None = None) -> Member:
        return await Member(self, name, faults).join()

    async def two(self) -> tuple[Member, Member]:
        """Members a, who leads, and b, who know of each other."""
        a = await self.member("a")
        await wait_ms(1)
        b = await self.member("b")
        await wait_ms(10)
        return a, b


def run(main: Callable[[Cluster], Awaitable[Any]], seed: int = 5) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        await world.node("brokers").run(lambda node: main(Cluster(node.runtime)))

    sim.run(scenario, seed=seed)


def test_brokers_see_each_other_come_and_go_and_follow_the_first() -> None:
    async def main(cluster: Cluster) -> None:
        a, b = await cluster.two()
        assert (a.sees, b.sees) == (["a", "b"], ["a", "b"])
        assert (a.election.is_leader, b.election.is_leader) == (True, False)
        assert b.election.leader == Leader("a:8080", "http://a:8080")
        node = await b.store.get(LEADER_PATH)
        assert node is not None
        assert node.stat.is_ephemeral
        await a.leave()
        await wait_ms(10)
        assert (b.sees, b.election.is_leader) == (["b"], True)
        await b.leave()

    run(main)


def test_what_no_watch_told_is_seen_in_a_round() -> None:
    async def main(cluster: Cluster) -> None:
        deaf = MetadataFaults(watch_lost_percent=100)
        b = await cluster.member("b", deaf)
        await wait_ms(RETRY_MS + 1)
        a = await cluster.member("a")
        await wait_ms(ROUND_MS)
        assert b.sees == ["a", "b"]
        cluster.server.notify(
            cluster.server.tree.delete(broker_path("b:8080"), expected_version=None, session=a.store.session)
        )
        await wait_ms(ROUND_MS + RETRY_MS)
        assert cluster.server.tree.exists(broker_path("b:8080"))
        await a.leave()
        await b.leave()

    run(main)


def test_who_lost_its_session_leads_no_more_at_once_and_comes_back() -> None:
    async def main(cluster: Cluster) -> None:
        a = await cluster.member("a")
        await wait_ms(1)
        b = await cluster.member("b")
        heard: list[bool] = []
        a.election.listen(heard.append)
        a.store.expire_session(outage_ms=100)
        await wait_ms(5)
        assert (a.election.is_leader, a.election.leader, a.registration.is_registered) == (False, None, False)
        await wait_ms(80)
        assert (b.election.is_leader, b.sees) == (True, ["b"])
        await wait_ms(50)
        assert a.registration.is_registered
        assert a.election.leader == Leader("b:8080", "http://b:8080")
        assert (a.sees, b.sees, heard) == (["a", "b"], ["a", "b"], [False])
        await a.leave()
        await b.leave()

    run(main)


def test_a_store_that_is_long_away_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """It was a line each half second: 170,000 a day."""

    async def main(cluster: Cluster) -> None:
        a = await cluster.member("a")
        a.store.expire_session(outage_ms=600_000)
        await wait_ms(590_000)
        told = [line for line in caplog.messages if "whether this broker is registered" in line]
        assert 9 <= len(told) <= 11
        assert told[-1].endswith("(119 more like it since the last of these lines)")
        await wait_ms(11_000)
        assert a.registration.is_registered
        await a.leave()

    run(main)


def test_a_predecessors_node_is_waited_for_and_another_broker_of_the_same_address_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        dead = await cluster.member("a")
        successor = Member(cluster, "a")
        dead.store.expire_session(outage_ms=60_000)
        await successor.join()
        await wait_ms(RETRY_MS)
        assert successor.election.is_leader
        second, clock = Member(cluster, "a"), cluster.runtime.clock.monotonic
        since = clock()
        with pytest.raises(ConflictError, match=r"another broker is registered as a:8080.*advertisedAddress"):
            await second.join()
        assert clock() - since >= SESSION_MS / 1000 + WAIT_MARGIN_S
        await second.registration.end()
        assert successor.sees == ["a"]
        await successor.leave()
        await dead.leave()

    run(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_a_write_of_unknown_outcome_is_settled_by_reading(fault: WriteFault) -> None:
    async def main(cluster: Cluster) -> None:
        a = Member(cluster, "a")
        a.store.faults.next_writes.append(fault)
        await a.registration.begin(a.value)
        await a.brokers.start()
        a.store.faults.next_writes.append(fault)
        a.election.start()
        await wait_ms(RETRY_MS + 10)
        assert (a.election.is_leader, a.sees) == (True, ["a"])
        await a.leave()

    run(main)


def test_what_a_broker_says_is_changed_in_its_node() -> None:
    async def main(cluster: Cluster) -> None:
        a = await cluster.member("a")
        a.registration.update(a.value.replace(b"geminga-1", b"geminga-2"))
        await wait_ms(10)
        await a.store.sync()
        node = await a.store.get(broker_path("a:8080"))
        assert node is not None
        assert b"geminga-2" in node.value
        assert node.stat.is_own
        await a.leave()

    run(main)


@pytest.mark.parametrize("damage", [b"{", b"[" * 5000])
def test_a_damaged_registration_is_passed_over_and_nobody_leads_by_a_damaged_node(damage: bytes) -> None:
    """What was nested too deep ended every broker of the cluster."""

    async def main(cluster: Cluster) -> None:
        other = MemoryMetadataStore(cluster.runtime, cluster.server)
        await other.put(broker_path("x:1"), damage, expected_version=MUST_NOT_EXIST)
        await other.put(LEADER_PATH, damage, expected_version=MUST_NOT_EXIST)
        a = await cluster.member("a")
        await wait_ms(10)
        assert (a.sees, a.election.leader) == (["a"], None)
        assert await a.place(BUNDLES[0]) == "a"
        await a.leave()
        await other.close()

    run(main)


def test_the_leader_chooses_once_and_the_others_send_to_it() -> None:
    async def main(cluster: Cluster) -> None:
        a, b = await cluster.two()
        chosen = [await a.place(bundle) for bundle in BUNDLES]
        assert chosen == ["a", "b"] * 8
        assert [await a.place(bundle) for bundle in BUNDLES] == chosen
        assert await b.place(BUNDLES[0]) == "ask a"
        # Somebody that is gone is not chosen again, and a leader that is gone is not asked.
        cluster.server.notify(
            cluster.server.tree.delete(broker_path("b:8080"), expected_version=None, session=a.store.session)
        )
        b.registration._rounds._is_ending = True
        await wait_ms(10)
        assert await a.place(BUNDLES[1]) == "a"
        await wait_ms(CHOICE_MS)
        await a.registration.end()
        await wait_ms(10)
        assert isinstance(await b.placement(BUNDLES[0]), Unknown)
        await b.leave()
        await a.leave()

    run(main)


def test_an_administrators_destination_comes_before_the_rule() -> None:
    async def main(cluster: Cluster) -> None:
        a, b = await cluster.two()
        for bundle in BUNDLES[:4]:
            a.placement.send(bundle, "b:8080")
        assert [await a.place(bundle) for bundle in BUNDLES[:4]] == ["b"] * 4
        await b.leave()
        await wait_ms(10)
        assert await a.place(BUNDLES[0]) == "a"
        await a.leave()

    run(main)


@pytest.mark.parametrize(
    ("bundles_per_s", "least_s", "most_s"), [(0, 0, 0.5), (-3, 0, 0.5), (1, 3, 4), (2, 1, 2), (1 << 40, 0, 0.5)]
)
def test_a_broker_that_is_shut_down_hands_over_so_many_bundles_a_second(
    bundles_per_s: int, least_s: float, most_s: float
) -> None:
    async def story(node: sim.SimNode) -> None:
        server = MemoryMetadata()
        store = MemoryMetadataStore(node.runtime, server)

        async def policies_of(namespace: str) -> dict[str, object] | None:
            return {"bundles": {"numBundles": 4}}

        membership = Membership(node.runtime, store, policies_of, session_timeout_ms=6000, version="1")  # type: ignore[arg-type]
        await membership.join([Endpoint("", "pulsar://a:6650", "", "http://a:8080", "")])
        membership.stand_for_election()
        await wait_ms(100)
        for bundle in equal_bundles("t/n", 4).all():
            assert await membership.ownership.owner_of_bundle(bundle, is_authoritative=True) is HERE
        clock = asyncio.get_running_loop().time
        begin = clock()
        both = asyncio.gather(membership.leave(bundles_per_s=bundles_per_s), membership.leave())
        await wait_ms(100)
        if least_s:
            # Nobody else asks it meanwhile, and what it still has it serves.
            assert not membership.is_member
            assert len(membership.ownership.owned) == 4 - bundles_per_s
        await both
        assert least_s <= clock() - begin <= most_s
        assert not membership.ownership.owned
        await store.close()

    async def scenario(world: sim.SimWorld) -> None:
        await world.node("a").run(story)

    sim.run(scenario, seed=1)


def test_who_leaves_the_election_makes_room_at_once_and_takes_nobody_elses_place() -> None:
    async def main(cluster: Cluster) -> None:
        a = await cluster.member("a")
        await wait_ms(10)
        b = await cluster.member("b")
        await wait_ms(10)
        await b.election.close()
        assert await a.store.get(LEADER_PATH) is not None
        await a.election.close()
        # Long before its session is over.
        assert await a.store.get(LEADER_PATH) is None
        await a.leave()
        await b.leave()

    run(main)


@pytest.mark.parametrize("after_ms", range(0, 60, 5))
def test_who_leaves_the_election_while_it_looks_does_not_lead_afterwards(after_ms: int) -> None:
    async def main(cluster: Cluster) -> None:
        faults = MetadataFaults()
        store = MemoryMetadataStore(cluster.runtime, cluster.server, faults)
        election = LeaderElection(store, Leader("a:8080", "http://a:8080"))
        told: list[bool] = []
        election.listen(told.append)
        faults.delay_ms_max = 20
        election.start()
        await wait_ms(after_ms)
        await election.close()
        assert (election.is_leader, told[-1:]) in ((False, []), (False, [False]))
        faults.delay_ms_max = 0
        assert await store.get(LEADER_PATH) is None
        await store.close()

    run(main)


class Whole:
    """Who hears of what was not expected."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def broke(self, what: str, error: BaseException) -> None:
        self.broken.append(f"{what}: {error}")


def test_a_look_that_breaks_is_tried_again_after_a_moment() -> None:
    looks: list[float] = []

    async def main(world: sim.SimWorld) -> None:
        set_strict(asyncio.get_running_loop(), False)
        whole = Whole()

        async def look() -> bool:
            looks.append(world.now)
            if len(looks) <= 2:
                raise RuntimeError("nobody thought of it")
            return True

        rounds = Rounds(look, "a look", part=whole)
        rounds.start()
        await wait_ms(3 * RETRY_MS + ROUND_MS)
        assert whole.broken == ["a look: nobody thought of it"] * 2
        assert looks == [0, RETRY_MS / 1000, 2 * RETRY_MS / 1000, (2 * RETRY_MS + ROUND_MS) / 1000]
        await rounds.end()

    sim.run(main)
