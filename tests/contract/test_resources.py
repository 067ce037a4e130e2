"""Clusters, tenants, namespaces and partitioned topics, over every metadata backend."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from geminga.broker.ownership.core.local_policies import local_policies_path
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.resources.clusters import CLUSTERS_PATH
from geminga.broker.resources.documents import CHANGE_ATTEMPTS_MAX, DocumentStore
from geminga.broker.resources.initialization import COORDINATORS_TOPIC, FIRST_NAMESPACES, KEPT_ALIKE_PATH
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.resources.tenants import POLICIES_PATH
from geminga.metadata import WriteFault
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import (
    AuthorizationError,
    ConflictError,
    CorruptionError,
    MetadataUnavailableError,
    NotFoundError,
    PreconditionFailedError,
)
from geminga.model.topic_name import SYSTEM_NAMESPACE, TopicName
from support.worlds.metadata_stores import Harness, store_case

URLS = {"serviceUrl": "http://127.0.0.1:8080", "brokerServiceUrl": "pulsar://127.0.0.1:6650"}
TOPIC = TopicName.parse("persistent://public/default/orders/2024")


@pytest.fixture(params=["memory", "memory-simulated", "sqlite"])
def case(request, tmp_path):
    return store_case(request, tmp_path)


async def bootstrapped(h: Harness) -> Resources:
    resources = Resources(h.store)
    await initialize_cluster(resources, ClusterSetup("standalone", URLS))
    return resources


def test_bootstrap_makes_what_a_standalone_starts_with(case) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        assert await resources.clusters.list() == ["standalone"]
        assert await resources.clusters.get("standalone") == URLS
        assert await resources.tenants.list() == ["public", "pulsar"]
        assert await resources.namespaces.list("public") == ["public/default"]
        assert await resources.namespaces.list("pulsar") == ["pulsar/system"]
        policies = await resources.namespaces.get("public/default")
        assert policies.replication_clusters == ("standalone",)
        assert policies.bundle_boundaries == ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")

    case.run(main)


def test_a_start_again_takes_nothing_back_that_an_operator_changed(case) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        await resources.namespaces.set_policy("public/default", "deduplicationEnabled", True)
        mine = {"serviceUrl": "http://balancer", "brokerServiceUrl": "pulsar://balancer"}
        await resources.clusters.update("standalone", mine)
        await resources.clusters.create("east", {})
        await resources.tenants.update("public", {"allowedClusters": ["east"], "adminRoles": ["me"]})
        setup = ClusterSetup("standalone", {**URLS, "serviceUrl": "http://127.0.0.1:9"})
        assert await initialize_cluster(resources, setup) == []
        assert await resources.clusters.get("standalone") == mine
        assert await resources.tenants.get("public") == {"allowedClusters": ["east"], "adminRoles": ["me"]}
        assert (await resources.namespaces.get("public/default")).document["deduplicationEnabled"] is True

    case.run(main)


class OneWrite:
    """A store whose process dies after one write."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._is_spent = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *arguments: Any, **options: Any) -> Any:
        if self._is_spent:
            raise MetadataUnavailableError("cut off")
        self._is_spent = True
        return await self._store.put(*arguments, **options)


def test_setup_that_was_cut_off_anywhere_is_completed_by_the_next(case) -> None:
    setup = ClusterSetup("c1", URLS, bundles=2, transaction_coordinators=3)
    whole = [
        "/admin/clusters/c1",
        "/admin/policies/public",
        "/admin/policies/pulsar",
        "/admin/policies/public/default",
        "/admin/policies/pulsar/system",
        "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
    ]

    async def main(h: Harness) -> None:
        for _ in whole[:-1]:
            with pytest.raises(MetadataUnavailableError):
                await initialize_cluster(Resources(OneWrite(h.store)), setup)
        assert await initialize_cluster(Resources(OneWrite(h.store)), setup) == whole[-1:]
        resources = Resources(h.store)
        assert await initialize_cluster(resources, setup) == []
        assert await resources.partitioned_topic_metadata(COORDINATORS_TOPIC) == 3
        policies = await resources.namespaces.get("pulsar/system")
        assert policies.bundle_boundaries == ("0x00000000", "0x80000000", "0xffffffff")

    case.run(main)


def test_another_cluster_joins_what_is_shared_and_coordinators_only_grow(case) -> None:
    async def main(h: Harness) -> None:
        resources = Resources(h.store)
        await initialize_cluster(resources, ClusterSetup("c1", URLS, transaction_coordinators=3))
        await resources.namespaces.set_policy("public/default", "unknownToUs", {"a": [1]})
        second = ClusterSetup("c2", URLS, bundles=8, transaction_coordinators=2, joins=FIRST_NAMESPACES)
        assert await initialize_cluster(resources, second) == [
            "/admin/clusters/c2",
            "/admin/policies/public",
            "/admin/policies/pulsar",
            "/admin/policies/public/default",
            "/admin/policies/pulsar/system",
        ]
        assert await initialize_cluster(resources, second) == []
        assert (await resources.tenants.get("public"))["allowedClusters"] == ["c1", "c2"]
        policies = await resources.namespaces.get("public/default")
        assert policies.replication_clusters == ("c1", "c2")
        assert policies.document["unknownToUs"] == {"a": [1]}
        assert len(policies.bundle_boundaries) == 5  # as it was made
        assert await resources.partitioned_topic_metadata(COORDINATORS_TOPIC) == 3
        more = ClusterSetup("c2", {}, transaction_coordinators=5)
        assert await initialize_cluster(resources, more) == [
            "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
        ]
        assert await resources.partitioned_topic_metadata(COORDINATORS_TOPIC) == 5

    case.run(main)


def test_what_others_deleted_is_not_made_again_where_clusters_are_kept_alike(case) -> None:
    """A start made `public/default` again, and told it to the clusters where an administrator had deleted it."""

    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        again = ClusterSetup("standalone", URLS, first_coordinators=4, joins=FIRST_NAMESPACES)
        await resources.namespaces.delete("public/default")
        assert await initialize_cluster(resources, again) == [
            "/admin/policies/public/default",
            "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign",
        ]
        await h.store.put(KEPT_ALIKE_PATH, b"", expected_version=None)
        for namespace in FIRST_NAMESPACES:
            await resources.namespaces.delete(namespace)
        for tenant in ("public", "pulsar"):
            await resources.tenants.delete(tenant)
        await resources.clusters.delete("standalone")
        # Of this cluster alone, and told to nobody.
        more = ClusterSetup("standalone", URLS, transaction_coordinators=8, joins=FIRST_NAMESPACES)
        assert await initialize_cluster(resources, more) == [
            "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
        ]
        assert (await resources.clusters.list(), await resources.tenants.list()) == ([], [])
        # Nor does it come back to what an administrator took it out of.
        await resources.clusters.create("east", {})
        await resources.tenants.create("public", {"allowedClusters": ["east"]})
        await resources.namespaces.create("public/default", {"replication_clusters": ["east"]})
        assert await initialize_cluster(resources, more) == []

    case.run(main)


def test_brokers_of_clusters_that_share_a_store_make_no_namespace_of_users(case) -> None:
    """Each start made a deleted `public/default` again, for all of them."""

    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        await resources.namespaces.delete("public/default")
        await resources.tenants.delete("public")
        setup = ClusterSetup("standalone", URLS, begins=(SYSTEM_NAMESPACE,), joins=(SYSTEM_NAMESPACE,))
        assert await initialize_cluster(resources, setup) == []
        assert await resources.tenants.list() == ["pulsar"]

    case.run(main)


def test_coordinators_that_are_there_stay_where_nobody_says_how_many(case) -> None:
    """`initialize-cluster-metadata` without its option, and each start of a broker, raised 4 to 16."""

    async def main(h: Harness) -> None:
        resources = Resources(h.store)
        asked = ClusterSetup("c1", URLS, transaction_coordinators=4, first_coordinators=16)
        await initialize_cluster(resources, asked)
        assert await initialize_cluster(resources, ClusterSetup("c1", URLS, first_coordinators=16)) == []
        assert await resources.partitioned_topic_metadata(COORDINATORS_TOPIC) == 4

    case.run(main)


def test_a_cluster_without_coordinators_gets_the_first_ones(case) -> None:
    async def main(h: Harness) -> None:
        resources = Resources(h.store)
        await initialize_cluster(resources, ClusterSetup("c1", URLS))
        await initialize_cluster(resources, ClusterSetup("c1", URLS, first_coordinators=16))
        assert await resources.partitioned_topic_metadata(COORDINATORS_TOPIC) == 16

    case.run(main)


def test_brokers_that_begin_at_the_same_time_all_succeed(case) -> None:
    async def main(h: Harness) -> None:
        setup = ClusterSetup("c1", URLS, transaction_coordinators=3, joins=FIRST_NAMESPACES)
        results = await asyncio.gather(*(initialize_cluster(Resources(h.store), setup) for _ in range(4)))
        assert len({path for changed in results for path in changed}) == 6
        assert await initialize_cluster(Resources(h.store), setup) == []

    case.run(main)


def test_everything_lies_at_pulsars_paths_as_json(case) -> None:
    assert (CLUSTERS_PATH, POLICIES_PATH) == ("/admin/clusters", "/admin/policies")
    assert PARTITIONED_TOPICS_PATH == "/admin/partitioned-topics"

    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        await resources.create_partitioned_topic(TOPIC, 3)
        for path in (
            f"{CLUSTERS_PATH}/standalone",
            f"{POLICIES_PATH}/public",
            f"{POLICIES_PATH}/public/default",
            f"{PARTITIONED_TOPICS_PATH}/public/default/persistent/orders%2F2024",
        ):
            node = await h.store.get(path)
            assert node is not None, path
            assert isinstance(json.loads(node.value), dict)

    case.run(main)


def test_cluster_is_created_changed_and_deleted(case) -> None:
    async def main(h: Harness) -> None:
        clusters = Resources(h.store).clusters
        await clusters.create("east", {"serviceUrl": "http://e"})
        with pytest.raises(ConflictError):
            await clusters.create("east", {})
        await clusters.update("east", {"serviceUrl": "http://f"})
        assert await clusters.get("east") == {"serviceUrl": "http://f"}
        await clusters.delete("east")
        for attempt in (clusters.get("east"), clusters.update("east", {}), clusters.delete("east")):
            with pytest.raises(NotFoundError):
                await attempt
        with pytest.raises(PreconditionFailedError):
            await clusters.create("no good", {})

    case.run(main)


def test_cluster_without_data_is_still_there(case) -> None:
    async def main(h: Harness) -> None:
        clusters = Resources(h.store).clusters
        await clusters.create("bare", {})
        assert await clusters.find("bare") == {}

    case.run(main)


def test_tenant_is_checked_against_names_clusters_and_roles(case) -> None:
    async def main(h: Harness) -> None:
        tenants = (await bootstrapped(h)).tenants
        good = {"allowedClusters": ["standalone"], "adminRoles": ["b", "a"]}
        await tenants.create("acme", good)
        assert await tenants.get("acme") == {"allowedClusters": ["standalone"], "adminRoles": ["a", "b"]}
        with pytest.raises(ConflictError):
            await tenants.create("acme", good)
        for name, info in (
            ("a/b", good),
            ("x", {}),
            ("x", {"allowedClusters": []}),
            ("x", {"allowedClusters": ["nowhere"]}),
            ("x", {"allowedClusters": "standalone"}),
            ("x", {**good, "adminRoles": [" padded "]}),
        ):
            with pytest.raises(PreconditionFailedError):
                await tenants.create(name, info)
        with pytest.raises(NotFoundError):
            await tenants.update("nobody", good)

    case.run(main)


def test_bundles_of_a_namespace_do_not_outlive_it(case) -> None:
    async def main(h: Harness) -> None:
        namespaces = (await bootstrapped(h)).namespaces
        path, cut = local_policies_path("public/orders"), b'{"bundles":{"boundaries":["0x00000000","0xffffffff"]}}'
        await namespaces.create("public/orders")
        await h.store.put(path, cut, expected_version=None)
        with pytest.raises(ConflictError):
            await namespaces.create("public/orders")
        assert await h.store.exists(path)
        await namespaces.delete("public/orders")
        assert not await h.store.exists(path)
        # As if that had been cut off in the middle.
        await h.store.put(path, cut, expected_version=None)
        await namespaces.create("public/orders")
        assert not await h.store.exists(path)

    case.run(main)


def test_tenant_with_namespaces_can_not_be_deleted(case) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        await resources.tenants.create("acme", {"allowedClusters": ["standalone"]})
        await resources.namespaces.create("acme/orders")
        with pytest.raises(ConflictError):
            await resources.tenants.delete("acme")
        await resources.namespaces.delete("acme/orders")
        await resources.tenants.delete("acme")
        with pytest.raises(NotFoundError):
            await resources.tenants.delete("acme")

    case.run(main)


def test_namespace_is_created_listed_and_deleted(case) -> None:
    async def main(h: Harness) -> None:
        namespaces = (await bootstrapped(h)).namespaces
        await namespaces.create("public/a")
        with pytest.raises(ConflictError):
            await namespaces.create("public/a")
        with pytest.raises(NotFoundError):
            await namespaces.create("nobody/a")
        for name in ("public/a b", "public/", "public"):
            with pytest.raises(PreconditionFailedError):
                await namespaces.create(name)
        with pytest.raises(AuthorizationError):
            await namespaces.create("public/b", {"replication_clusters": ["elsewhere"]})
        assert await namespaces.list("public") == ["public/a", "public/default"]
        await namespaces.delete("public/a")
        assert await namespaces.find("public/a") is None
        with pytest.raises(NotFoundError):
            await namespaces.get("public/a")
        with pytest.raises(NotFoundError):
            await namespaces.list("nobody")

    case.run(main)


def test_unknown_policies_survive_a_change(case) -> None:
    async def main(h: Harness) -> None:
        namespaces = (await bootstrapped(h)).namespaces
        await namespaces.create("public/a", {"from_the_future": {"x": [1]}, "message_ttl_in_seconds": 5})
        await namespaces.set_policy("public/a", "message_ttl_in_seconds", None)
        policies = await namespaces.get("public/a")
        assert "message_ttl_in_seconds" not in policies.document
        assert "message_ttl_in_seconds" not in policies.document
        assert policies.document["from_the_future"] == {"x": [1]}

    case.run(main)


def test_partitioned_topic_grows_and_never_shrinks(case) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        topics = resources.partitioned_topics
        assert await resources.partitioned_topic_metadata(TOPIC) is None
        await resources.create_partitioned_topic(TOPIC, 2, {"owner": "me"})
        with pytest.raises(ConflictError):
            await resources.create_partitioned_topic(TOPIC, 2)
        await resources.update_partitioned_topic(TOPIC, 5)
        with pytest.raises(ConflictError):
            await resources.update_partitioned_topic(TOPIC, 4)
        assert await resources.partitioned_topic_metadata(TOPIC) == 5
        assert await resources.partitioned_topic_metadata(TOPIC.with_partition(1)) == 5
        found = await topics.find(TOPIC)
        assert found is not None
        assert found.properties == {"owner": "me"}
        await topics.set_properties(TOPIC, {"owner": "you"})
        assert await resources.list_partitioned_topics("public/default") == [str(TOPIC)]
        await resources.delete_partitioned_topic(TOPIC)
        with pytest.raises(NotFoundError):
            await resources.delete_partitioned_topic(TOPIC)
        for name, count in ((TOPIC, 0), (TOPIC.with_partition(0), 1)):
            with pytest.raises(PreconditionFailedError):
                await resources.create_partitioned_topic(name, count)

    case.run(main)


def test_damaged_document_is_an_error_that_names_its_path(case) -> None:
    async def main(h: Harness) -> None:
        await h.store.put("/admin/clusters/east", b"{", expected_version=None)
        await h.store.put("/admin/clusters/west", b"[]", expected_version=None)
        for name in ("east", "west"):
            with pytest.raises(CorruptionError, match=f"/admin/clusters/{name}"):
                await Resources(h.store).clusters.get(name)

    case.run(main)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_unknown_outcome_of_a_write_is_found_out(case, fault: WriteFault) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        h.store.faults.next_writes.append(fault)
        await resources.namespaces.create("public/a")
        assert await resources.namespaces.find("public/a") is not None
        h.store.faults.next_writes.append(fault)
        await resources.namespaces.set_policy("public/a", "deduplicationEnabled", True)
        assert (await resources.namespaces.get("public/a")).document["deduplicationEnabled"] is True

    case.run(main)


@pytest.mark.parametrize("fault", [WriteFault.NONE, WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_deletion_takes_the_version_that_was_judged_and_no_other(case, fault: WriteFault) -> None:
    async def main(h: Harness) -> None:
        resources = await bootstrapped(h)
        await resources.create_partitioned_topic(TOPIC, 2)
        judged = await resources.partitioned_topics.find(TOPIC)
        assert judged is not None
        await resources.update_partitioned_topic(TOPIC, 3)
        h.store.faults.next_writes.append(fault)
        with pytest.raises(ConflictError, match="changed while it was to be deleted"):
            await resources.delete_partitioned_topic(TOPIC, expected_version=judged.version)
        assert await resources.partitioned_topic_metadata(TOPIC) == 3
        h.store.faults.next_writes.clear()
        h.store.faults.next_writes.append(fault)
        await resources.delete_partitioned_topic(TOPIC)
        assert await resources.partitioned_topic_metadata(TOPIC) is None
        policies = await resources.namespaces.get("public/default")
        await resources.namespaces.set_policy("public/default", "deduplicationEnabled", True)
        with pytest.raises(ConflictError):
            await resources.namespaces.delete("public/default", expected_version=policies.version)

    case.run(main)


def test_document_that_keeps_changing_is_not_deleted(case) -> None:
    async def main(h: Harness) -> None:
        class Busy:
            get = staticmethod(h.store.get)

            async def delete(self, path, *, expected_version=None):
                await h.store.put(path, b'{"n":1}', expected_version=None)
                await h.store.delete(path, expected_version=expected_version)

        await DocumentStore(h.store).create("/x", {"n": 0}, "exists")
        with pytest.raises(ConflictError, match="kept changing"):
            await DocumentStore(Busy()).delete("/x", missing="missing", not_empty="children")
        assert (await h.store.get("/x")).value == b'{"n":1}'

    case.run(main)


def test_change_that_always_loses_is_given_up(case) -> None:
    async def main(h: Harness) -> None:
        store = DocumentStore(h.store)
        await store.create("/x", {"n": 0}, "exists")
        calls = 0

        def losing(document):
            nonlocal calls
            calls += 1
            return {"n": calls}

        for _ in range(CHANGE_ATTEMPTS_MAX):
            h.store.faults.next_writes.append(WriteFault.UNKNOWN_BEFORE)
        with pytest.raises(ConflictError, match="kept changing"):
            await store.change("/x", losing, "missing")
        assert calls == CHANGE_ATTEMPTS_MAX

    case.run(main)


@pytest.mark.parametrize("fault", [WriteFault.NONE, WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_what_is_put_is_made_or_changed_once_whoever_else_makes_or_changes_it(case, fault: WriteFault) -> None:
    async def main(h: Harness) -> None:
        store, seen = DocumentStore(h.store), []

        def counted(document):
            seen.append(document and dict(document))
            if document is None:
                return {"n": 1}
            # In place, as a change may.
            document["n"] += 1
            return document

        # Below a parent that the store makes on the way, and then that parent itself.
        for path in ("/x/y", "/x"):
            h.store.faults.next_writes.append(fault)
            made = await store.put(path, counted)
            assert await store.find(path) == made
        # Whether it was written can not be known of one that was: it is done once more.
        again = [{"n": 1}] if fault is WriteFault.UNKNOWN_AFTER else [None] * (fault is WriteFault.UNKNOWN_BEFORE)
        assert seen == 2 * [None, *again]
        h.store.faults.next_writes.append(fault)
        assert (await store.put("/x/y", lambda _: {"n": 5})).document == {"n": 5}
        before = await store.find("/x/y")
        assert await store.put("/x/y", lambda document: document) == before

        class Busy:
            """Others change it between what was read and what is written, once."""

            get = staticmethod(h.store.get)
            is_first = True

            async def put(self, path, value, *, expected_version):
                if self.is_first:
                    self.is_first = False
                    await h.store.put(path, b'{"n":7}', expected_version=None)
                return await h.store.put(path, value, expected_version=expected_version)

        assert (await DocumentStore(Busy()).put("/x/y", counted)).document == {"n": 8}
        assert (await DocumentStore(Busy()).put("/new", counted)).document == {"n": 8}

    case.run(main)
