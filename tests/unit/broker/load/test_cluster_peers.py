"""Load management asks this broker, which leads on; and a rule of placement reads registrations."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.broker.load.chooser import LoadChooser
from geminga.broker.load_rules.reports import BrokerReport
from geminga.broker.ownership.core.broker_data import RegisteredBroker
from geminga.broker.ownership.core.bundles import equal_bundles
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.membership import Membership
from geminga.broker.peers.cluster_peers import ClusterPeers
from geminga.broker.peers.http_client import PeerAnswer
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import NotFoundError, UnavailableError

BUNDLE = "t/n/0x00000000_0x40000000"


class Asked:
    """Answers with a status, and keeps what was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str, str]] = []
        self.status = 204

    async def ask_at(
        self, endpoint: Endpoint, method: str, path: str, *, query: str = "", body: bytes = b""
    ) -> PeerAnswer:
        assert body == b""
        self.calls.append((endpoint.web_url, method, path, query))
        return PeerAnswer(self.status, b"{}", endpoint.web_url)


def test_requests_go_to_this_broker_and_refusals_are_told() -> None:
    async def story(node: sim.SimNode) -> None:
        store = MemoryMetadataStore(node.runtime, MemoryMetadata())

        async def policies_of(namespace: str) -> dict[str, object] | None:
            return {"bundles": {"numBundles": 4}} if namespace == "t/n" else None

        membership = Membership(node.runtime, store, policies_of, session_timeout_ms=6000, version="1")  # type: ignore[arg-type]
        asked = Asked()
        peers = ClusterPeers(membership, asked)
        assert not peers.is_member
        assert not peers.is_leader
        await membership.join([Endpoint("", "pulsar://a:6650", "", "http://a:8080", "")])
        membership.stand_for_election()
        await sim_ms()
        assert peers.is_member
        assert peers.is_leader
        peers.report(b'{"pulsarServiceUrl":"pulsar://a:6650"}')
        assert peers.document["webServiceUrl"] == "http://a:8080"
        await peers.unload(BUNDLE, "b:8080")
        await peers.split(BUNDLE, unload=True)
        assert asked.calls == [
            ("http://a:8080", "PUT", f"/admin/v2/namespaces/{BUNDLE}/unload", "destinationBroker=b:8080"),
            ("http://a:8080", "PUT", f"/admin/v2/namespaces/{BUNDLE}/split", "unload=true"),
        ]
        asked.status = 500
        with pytest.raises(UnavailableError):
            await peers.unload(BUNDLE, "b:8080")
        assert await peers.bundle_count("t/n") == 4
        with pytest.raises(NotFoundError):
            await peers.bundle_count("t/other")
        await membership.leave()
        assert not peers.is_leader
        await store.close()

    async def scenario(world: sim.SimWorld) -> None:
        await world.node("a").run(story)

    sim.run(scenario, seed=1)


async def sim_ms() -> None:
    from geminga.runtime import wait_ms

    await wait_ms(100)


def test_a_rule_by_load_passes_over_registrations_that_can_not_be_read() -> None:
    seen: list[tuple[str, list[str]]] = []

    def assign(bundle: str, reports: object) -> str | None:
        assert isinstance(reports, dict)
        assert all(isinstance(one, BrokerReport) for one in reports.values())
        seen.append((bundle, sorted(reports)))
        return None

    owner = OwnerData(OwnerListener("pulsar://a:1"), {})
    brokers = [RegisteredBroker("a:1", owner, {}), RegisteredBroker("b:1", owner, {"cpu": 7})]
    chooser = LoadChooser(assign)
    bundle = equal_bundles("t/n", 4).all()[0]
    assert chooser.choose(bundle, brokers) is None
    assert chooser.choose(bundle, brokers[1:]) is None
    assert seen == [(BUNDLE, ["a:1"]), (BUNDLE, [])]
