"""``pulsar-admin`` at the brokers of a mixed cluster: whichever of the two it is run at, it prints the same.

What it prints is compared as JSON where it is some. ``support.processes.mixed_admin`` names what is left out, and why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pulsar
import pytest
from pulsar.schema import AvroSchema, Record, String
from tools.interop.pulsar_admin import PulsarAdmin, pulsar_admin
from tools.zookeeper_server import running_zookeeper

from support.processes.mixed_admin import Asking
from support.processes.mixed_cluster import BUNDLES, CALM, MAKES, Make, MixedCluster, eventually, mixed_cluster
from support.processes.official import quiet_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(550)]

NAMESPACE: Final = "public/admin"


class Fact(Record):
    name = String(required=True)


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


@pytest.fixture(scope="module")
def topics(cluster: MixedCluster, admin: PulsarAdmin, tmp_path_factory: pytest.TempPathFactory) -> dict[Make, str]:
    """One at each broker, with a schema, two subscriptions and properties; one with partitions beside them."""
    asking = Asking(cluster, admin)
    asking.done("apache", f"namespaces create {NAMESPACE} --bundles {BUNDLES}")
    asking.done("geminga", f"namespaces set-retention {NAMESPACE} -s -1 -t -1")
    asking.done("apache", f"topics create-partitioned-topic persistent://{NAMESPACE}/parts -p 4 -m owner=a -m kind=b")
    asking.done("geminga", f"topics create persistent://{NAMESPACE}/plain -m owner=c")
    found: dict[Make, str] = {}
    client = quiet_client(cluster.service_url, tmp_path_factory.mktemp("client"))
    for make in MAKES:
        local = f"{NAMESPACE}/at-{make}"
        cluster.owner(local)
        cluster.move(local, make)
        topic = found[make] = f"persistent://{local}"
        consumer = client.subscribe(topic, "part", initial_position=pulsar.InitialPosition.Earliest)
        client.subscribe(topic, "none", consumer_type=pulsar.ConsumerType.Shared).close()
        producer = client.create_producer(topic, schema=AvroSchema(Fact), batching_enabled=False)
        for number in range(10):
            producer.send(Fact(name=str(number)), properties={"number": str(number)}, partition_key=f"k{number}")
        producer.close()
        for _ in range(4):
            consumer.acknowledge(consumer.receive(30_000))
        consumer.close()
        # Positions of cursors are in the answers: they are there when they are stored.
        eventually(lambda path=f"persistent/{local}/stats": backlog(cluster, path), 6)
        cluster.move(local, make)
        asking.done(make, f"topics stats {topic}")
    client.create_producer(f"persistent://{NAMESPACE}/parts").send(b"one")
    client.close()
    return found


def backlog(cluster: MixedCluster, path: str) -> int:
    return int(cluster.rest("geminga").get(path).json["subscriptions"]["part"]["msgBacklog"])


def test_cluster_and_brokers(cluster: MixedCluster, admin: PulsarAdmin, topics: dict[Make, str]) -> None:
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
    for make in MAKES:
        other = MAKES[make == MAKES[0]]
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
        asking.done(
            make, f"clusters create-failure-domain {name} --domain-name d-{make} --broker-list {cluster.id(make)}"
        )
        asking.both(f"clusters list-failure-domains {name}")
        asking.both(f"clusters get-failure-domain {name} --domain-name d-{make}")
        asking.done(other, f"clusters delete-failure-domain {name} --domain-name d-{make}")
        isolation = f"ns-isolation-policy set {name} p-{make} --namespaces public/isolated.* --primary 127.0.0.1:1.*"
        isolation += " --secondary 127.0.0.1:2.* --auto-failover-policy-type min_available"
        isolation += " --auto-failover-policy-params min_limit=1,usage_threshold=80"
        asking.done(make, isolation)
        asking.both(f"ns-isolation-policy list {name}")
        asking.both(f"ns-isolation-policy get {name} p-{make}")
        asking.both(f"ns-isolation-policy brokers {name}")
        asking.both(f"ns-isolation-policy broker {name} --broker {cluster.id(make)}")
        asking.done(other, f"ns-isolation-policy delete {name} p-{make}")
        asking.both(f"ns-isolation-policy get {name} p-{make}", is_done=False)
        asking.done(make, "brokers update-dynamic-config --config dispatcherMaxReadBatchSize --value 40")
        asking.both("brokers get-all-dynamic-config")
        asking.done(other, "brokers delete-dynamic-config --config dispatcherMaxReadBatchSize")
        asking.both("brokers get-all-dynamic-config")
    asking.check()


UNUSED: Final = "-m delete_when_no_subscriptions"
#: Words that set a policy of a namespace (without ``set-``), and another value; what it is read and removed by.
NAMESPACE_POLICIES: Final = [
    ("message-ttl", "-ttl 100", "-ttl 200", "remove"),
    ("retention", "-s 1G -t 3h", "-s -1 -t -1", ""),
    ("persistence", "-e 2 -w 2 -a 1 -r 0", "-e 3 -w 2 -a 2 -r 1.5", "remove"),
    ("backlog-quotas/backlog-quota", "-l 10M -p producer_exception", "-l 20M -p consumer_backlog_eviction", "remove"),
    ("deduplication", "--enable", "--disable", "remove"),
    ("deduplication-snapshot-interval", "-i 100", "-i 200", "remove"),
    ("dispatch-rate", "-md 100 -bd 1000 -dt 2", "-md 200", "remove"),
    ("subscription-dispatch-rate", "-md 100 -bd 1000 -dt 2", "-md 200", "remove"),
    ("replicator-dispatch-rate", "-md 100 -bd 1000 -dt 2", "-md 200", "remove"),
    ("publish-rate", "-m 100 -b 1000", "-m 200", "remove"),
    ("subscribe-rate", "-sr 10 -st 30", "-sr 20 -st 60", "remove"),
    ("max-producers-per-topic", "-p 10", "-p 20", "remove"),
    ("max-consumers-per-topic", "-c 10", "-c 20", "remove"),
    ("max-consumers-per-subscription", "-c 10", "-c 20", "remove"),
    ("max-unacked-messages-per-consumer", "-c 10", "-c 20", "remove"),
    ("max-unacked-messages-per-subscription", "-c 10", "-c 20", "remove"),
    ("max-subscriptions-per-topic", "-m 10", "-m 20", "remove"),
    ("max-topics-per-namespace", "-t 100", "-t 200", "remove"),
    ("compaction-threshold", "-t 10M", "-t 20M", "remove"),
    ("offload-threshold", "-s 10M -t 1h", "-s -1", ""),
    ("delayed-delivery", "--enable -t 2s", "--disable", "remove"),
    ("inactive-topic-policies", f"-e -t 7d {UNUSED}", f"-d -t 1d {UNUSED}", "remove"),
    ("auto-topic-creation", "-e -t partitioned -n 2", "-d", "remove"),
    ("auto-subscription-creation", "-e", "-d", "remove"),
    ("subscription-types-enabled", "-t Shared,Failover", "-t Exclusive", "remove"),
    ("subscription-expiration-time", "-t 100", "-t 200", "remove"),
    ("schema-compatibility-strategy", "-c FULL", "-c BACKWARD", ""),
    ("schema-autoupdate-strategy", "-c Full", "-c Backward", ""),
    ("is-allow-auto-update-schema", "--disable", "--enable", ""),
    ("schema-validation-enforce", "--enable", "--disable", ""),
    ("encryption-required", "--enable", "--disable", ""),
    ("subscription-auth-mode", "-m Prefix", "-m None", ""),
    ("anti-affinity-group", "-g one", "-g two", "delete"),
    ("bookie-affinity-group", "-pg one", "-pg two -sg three", "delete"),
    ("property", "-k a -v b", "-k a -v c", ""),
    ("properties", "-p a=b,c=d", "-p e=f", "clear"),
    ("entry-filters", "--desc one --entry-filters-name one", "", ""),
    ("dispatcher-pause-on-ack-state-persistent", "", "", "remove"),
    ("allowed-clusters", "-c mixed", "", ""),
    ("clusters", "-c mixed", "", ""),
]


def test_policies_of_namespaces(cluster: MixedCluster, admin: PulsarAdmin, topics: dict[Make, str]) -> None:
    asking = Asking(cluster, admin)
    namespace = "public/policies"
    asking.done("geminga", f"namespaces create {namespace} --bundles 4")
    asking.both(f"namespaces policies {namespace}")
    for number, (name, value, other, end) in enumerate(NAMESPACE_POLICIES):
        read_by, _, set_by = name.partition("/")
        get = f"namespaces get-{read_by} {namespace}" + (" -k a" if name == "property" else "")
        first, second = (MAKES[number % 2], MAKES[number % 2 - 1])
        asking.both(get, is_done=None)
        for make, each in ((first, value), (second, other or value)):
            command = f"namespaces set-{set_by or name} {namespace} {each}"
            printed = asking.at(make, command)
            if not printed.is_done:
                # Then the other refuses it as well.
                asking.both(command, is_done=False)
            asking.both(get, is_done=None)
        if end and not asking.is_unbuilt(first, f"namespaces {end}-{set_by or name} {namespace}"):
            asking.both(get, is_done=None)
    asking.both(f"namespaces policies {namespace}")
    for make in MAKES:
        asking.done(make, f"namespaces grant-permission {namespace} --role r-{make} --actions produce,consume")
        asking.both(f"namespaces permissions {namespace}")
    asking.both(f"namespaces subscription-permission {namespace}")
    asking.done("apache", f"namespaces revoke-permission {namespace} --role r-geminga")
    asking.done("geminga", f"namespaces revoke-permission {namespace} --role r-apache")
    asking.both(f"namespaces permissions {namespace}")
    asking.both("namespaces policies public/nothing", is_done=False)
    asking.check()


#: The same of topics.
TOPIC_POLICIES: Final = [
    ("message-ttl", "-t 100", "-t 200"),
    ("retention", "-s 1G -t 3h", "-s -1 -t -1"),
    ("backlog-quota", "-l 10M -p producer_exception", "-l 20M -p consumer_backlog_eviction"),
    ("persistence", "-e 2 -w 2 -a 1 -r 0", "-e 3 -w 2 -a 2 -r 1.5"),
    ("deduplication", "--enable", "--disable"),
    ("deduplication-snapshot-interval", "-i 100", "-i 200"),
    ("dispatch-rate", "-md 100 -bd 1000 -dt 2", "-md 200"),
    ("subscription-dispatch-rate", "-md 100 -bd 1000 -dt 2", "-md 200"),
    ("publish-rate", "-m 100 -b 1000", "-m 200"),
    ("subscribe-rate", "-sr 10 -st 30", "-sr 20 -st 60"),
    ("max-producers", "-p 10", "-p 20"),
    ("max-consumers", "-c 10", "-c 20"),
    ("max-consumers-per-subscription", "-c 10", "-c 20"),
    ("max-unacked-messages-per-consumer", "-m 10", "-m 20"),
    ("max-unacked-messages-per-subscription", "-m 10", "-m 20"),
    ("max-subscriptions-per-topic", "-s 10", "-s 20"),
    ("max-message-size", "-m 1000", "-m 2000"),
    ("compaction-threshold", "-t 10M", "-t 20M"),
    ("delayed-delivery", "--enable -t 2s", "--disable"),
    ("inactive-topic-policies", f"-e -t 7d {UNUSED}", f"-d -t 1d {UNUSED}"),
    ("schema-compatibility-strategy", "-s FULL", "-s BACKWARD"),
    ("auto-subscription-creation", "-e", ""),
    ("dispatcher-pause-on-ack-state-persistent", "", ""),
]


def test_policies_of_topics(cluster: MixedCluster, admin: PulsarAdmin, topics: dict[Make, str]) -> None:
    asking = Asking(cluster, admin)
    for number, (name, value, other) in enumerate(TOPIC_POLICIES):
        topic = topics[MAKES[number % 2]]
        first, second = (MAKES[number // 2 % 2], MAKES[number // 2 % 2 - 1])
        get = f"topicPolicies get-{name} {topic}"
        # Quotas without limit, which hold where there is none, are a row of docs/compatibility.md.
        reads = (get,) if name == "backlog-quota" else (get, f"{get} -ap")
        for read in reads:
            asking.both(read, is_done=None)
        for make, each in ((first, value), (second, other)):
            put = f"topicPolicies set-{name} {topic} {each}"
            if asking.is_unbuilt(make, put):
                break
            for read in reads:
                asking.both(read, is_done=None)
        else:
            asking.done(first, f"topicPolicies remove-{name} {topic}")
        asking.both(get, is_done=None)
    asking.check()


def test_topics_subscriptions_schemas_and_bundles(
    cluster: MixedCluster, admin: PulsarAdmin, topics: dict[Make, str]
) -> None:
    asking = Asking(cluster, admin)
    for command in (
        f"namespaces bundles {NAMESPACE}",
        f"namespaces topics {NAMESPACE}",
        f"topics list {NAMESPACE}",
        f"topics list-partitioned-topics {NAMESPACE}",
        f"topics get-partitioned-topic-metadata persistent://{NAMESPACE}/parts",
        f"topics get-properties persistent://{NAMESPACE}/parts",
        f"topics get-properties persistent://{NAMESPACE}/plain",
        f"topics partitioned-lookup persistent://{NAMESPACE}/parts",
        f"topics partitioned-stats persistent://{NAMESPACE}/parts",
        f"topics partitioned-stats persistent://{NAMESPACE}/parts --per-partition",
        f"topics partitioned-stats-internal persistent://{NAMESPACE}/parts",
        f"topics subscriptions persistent://{NAMESPACE}/parts",
    ):
        asking.both(command)
    for topic, subscription in itertools.product(topics.values(), ("part", "none")):
        for command in (
            f"topics peek-messages {topic} -s {subscription} -n 3",
            f"topics get-subscription-properties {topic} -s {subscription}",
            f"topics analyze-backlog {topic} -s {subscription}",
            f"topics get-replicated-subscription-status {topic} -s {subscription}",
        ):
            asking.both(command, is_done=None)
    for topic in topics.values():
        for command in (
            f"topics lookup {topic}",
            f"topics bundle-range {topic}",
            f"topics permissions {topic}",
            f"topics subscriptions {topic}",
            f"topics stats {topic}",
            f"topics stats {topic} -gpb -sbs -etb",
            f"topics stats-internal {topic}",
            f"topics stats-internal {topic} -m",
            f"topics last-message-id {topic}",
            f"topics get-properties {topic}",
            f"topics compaction-status {topic}",
            f"topics offload-status {topic}",
            f"topics examine-messages {topic} -i earliest -m 2",
            f"topics examine-messages {topic} -i latest -m 1",
            f"topics get-shadow-topics {topic}",
            f"schemas get {topic}",
            f"schemas get {topic} --version 0",
            f"schemas metadata {topic}",
            f"namespaces get-topic-positions {NAMESPACE} -t {topic} -b {bundle_of(cluster, topic)}",
        ):
            asking.both(command, is_done=None)
        # Of the ledger that is open Apache's broker says the time of the question.
        asking.both(f"topics info-internal {topic}", moving=frozenset({"timestamp"}))
        asking.both(f"topics create {topic}", is_done=False)
        asking.both(f"topics create-subscription {topic} -s part", is_done=False)
        asking.both(f"topics unsubscribe {topic} -s nobody", is_done=False)
        asking.both(f"topics stats {topic}-nothing", is_done=False)
        asking.both(f"schemas get {topic}-nothing", is_done=False)
    for make, topic in itertools.product(MAKES, topics.values()):
        other = MAKES[make == MAKES[0]]
        named = f"made-{make}"
        for step, asked in (
            (f"create-subscription {topic} -s {named} -m earliest -p a=b", make),
            (f"skip {topic} -s {named} -n 3", other),
            (f"update-subscription-properties {topic} -s {named} -p c=d", make),
            (f"reset-cursor {topic} -s {named} -m earliest", make),
            (f"expire-messages {topic} -s {named} -t 10000", other),
            (f"clear-backlog {topic} -s {named}", make),
            (f"update-properties {topic} -p x={make}", other),
            (f"unsubscribe {topic} -s {named}", other),
            (f"remove-properties {topic} -k x", make),
        ):
            asking.done(asked, f"topics {step}")
            asking.both(f"topics subscriptions {topic}")
            asking.both(f"topics get-properties {topic}", is_done=None)
            asking.both(f"topics get-subscription-properties {topic} -s {named}", is_done=None)
            asking.both(f"topics stats {topic}")
    for make in MAKES:
        topic, other = f"persistent://{NAMESPACE}/more-{make}", MAKES[make == MAKES[0]]
        asking.done(make, f"topics create-partitioned-topic {topic} -p 2")
        asking.both(f"topics list-partitioned-topics {NAMESPACE}")
        asking.done(other, f"topics update-partitioned-topic {topic} -p 3")
        asking.both(f"topics get-partitioned-topic-metadata {topic}")
        asking.both(f"topics list {NAMESPACE}")
        asking.both(f"topics create-partitioned-topic {topic} -p 2", is_done=False)
        asking.done(other, f"topics delete-partitioned-topic {topic}")
        asking.both(f"topics list-partitioned-topics {NAMESPACE}")
        asking.both(f"topics list {NAMESPACE}")
    asking.check()


def bundle_of(cluster: MixedCluster, topic: str) -> str:
    return cluster.bundle(topic.removeprefix("persistent://"))
