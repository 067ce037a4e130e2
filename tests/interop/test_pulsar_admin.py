"""``pulsar-admin`` at the brokers of a mixed cluster: whichever of the two it is run at, it prints the same.

What it prints is compared as JSON where it is some. ``support.mixed_admin`` names what is left out, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.zookeeper_server import running_zookeeper

from support.mixed_admin import Asking
from support.mixed_cluster import CALM, MAKES, MixedCluster, mixed_cluster
from support.pulsar_admin import PulsarAdmin, pulsar_admin

pytestmark = [pytest.mark.integration, pytest.mark.timeout(550)]


@pytest.fixture(scope="module")
def cluster(judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    if not judge_is_apache:
        pytest.skip("Apache's broker beside ours")
    with running_zookeeper() as zookeeper, mixed_cluster(zookeeper, tmp_path_factory.mktemp("admin"), CALM) as mixed:
        yield mixed


@pytest.fixture(scope="module")
def admin(cluster: MixedCluster) -> Iterator[PulsarAdmin]:
    with pulsar_admin(cluster.directory) as program:
        yield program


def test_cluster_and_brokers(cluster: MixedCluster, admin: PulsarAdmin) -> None:
    asking = Asking(cluster, admin)
    name = "mixed"
    for command in (
        "brokers healthcheck",
        f"brokers list {name}",
        "brokers leader-broker",
        *(f"brokers namespaces {name} --url {cluster.id(make)}" for make in MAKES),
        "brokers get-all-dynamic-config",
        "brokers backlog-quota-check",
        "clusters list",
        f"clusters get {name}",
        f"clusters list-failure-domains {name}",
        f"clusters get-peer-clusters {name}",
        "tenants list",
        "tenants get public",
        "namespaces list public",
        "bookies list-bookies",
        "bookies racks-placement",
        "resourcegroups list",
        "transactions coordinators-list",
    ):
        asking.both(command)
    for command in ("tenants get nobody", "namespaces list nobody", f"clusters get-failure-domain {name} -d none"):
        asking.both(command, is_done=False)
    make, other = MAKES
    asking.done(make, f"tenants create of-{make} --allowed-clusters {name} --admin-roles a,b")
    asking.both(f"tenants get of-{make}")
    asking.done(other, f"tenants update of-{make} --allowed-clusters {name} --admin-roles c")
    asking.both(f"tenants get of-{make}")
    asking.both(f"tenants create of-{make} --allowed-clusters {name}", is_done=False)
    asking.done(make, f"namespaces create of-{make}/one --bundles 4")
    asking.both(f"tenants delete of-{make}", is_done=False)
    asking.both(f"namespaces list of-{make}")
    asking.done(other, f"namespaces delete of-{make}/one")
    asking.done(other, f"tenants delete of-{make}")
    asking.both("tenants list")
    asking.done(make, f"clusters create-failure-domain {name} --domain-name d-{make} --broker-list {cluster.id(make)}")
    asking.both(f"clusters list-failure-domains {name}")
    asking.both(f"clusters get-failure-domain {name} --domain-name d-{make}")
    asking.done(other, f"clusters delete-failure-domain {name} --domain-name d-{make}")
    isolation = f"ns-isolation-policy set {name} p-{make} --namespaces public/isolated.* --primary 127.0.0.1:1.*"
    isolation += " --secondary 127.0.0.1:2.* --auto-failover-policy-type min_available"
    isolation += " --auto-failover-policy-params min_limit=1,usage_threshold=80"
    asking.done(make, isolation)
    asking.both(f"ns-isolation-policy list {name}")
    asking.both(f"ns-isolation-policy get {name} p-{make}")
    asking.check()
