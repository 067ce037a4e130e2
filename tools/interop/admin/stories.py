"""Which commands are run in the same namespace, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tools.interop.admin.arguments import line_of
from tools.interop.admin.commands import Command

_ISOLATION: Final = (
    "--namespaces {ns}.* --primary 127.0.0.1:.* --secondary 192.0.2.1:.* --auto-failover-policy-type min_available "
    "--auto-failover-policy-params min_limit=1,usage_threshold=80"
)
_RACK: Final = "-b 127.0.0.1:3181"
#: Told whole: title, lines.
CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "tenants": (
        "tenants list",
        "tenants create admin-t --allowed-clusters standalone --admin-roles a,b",
        "tenants get admin-t",
        "tenants update admin-t --allowed-clusters standalone --admin-roles c",
        "tenants get admin-t",
        "tenants create admin-t --allowed-clusters standalone",
        "tenants delete admin-t",
        "tenants get admin-t",
        "tenants create admin-u",
        "tenants delete admin-u -f",
        "tenants delete admin-u",
    ),
    "clusters": (
        "clusters list",
        "clusters list -c",
        "clusters create admin-c --url http://127.0.0.1:9 --broker-url pulsar://127.0.0.1:9",
        "clusters get admin-c",
        "clusters update admin-c --url http://127.0.0.1:8 --broker-url pulsar://127.0.0.1:8",
        "clusters get admin-c",
        "clusters get-cluster-migration admin-c",
        "clusters update-cluster-migration admin-c --service-url http://127.0.0.1:7 --broker-url pulsar://127.0.0.1:7",
        "clusters update-peer-clusters standalone --peer-clusters admin-c",
        "clusters get-peer-clusters standalone",
        "clusters update-peer-clusters standalone --peer-clusters ,",
        "clusters create-failure-domain standalone --domain-name d --broker-list {broker}",
        "clusters get-failure-domain standalone --domain-name d",
        "clusters list-failure-domains standalone",
        "clusters update-failure-domain standalone --domain-name d --broker-list {broker}",
        "clusters delete-failure-domain standalone --domain-name d",
        "clusters get-failure-domain standalone --domain-name d",
        "clusters delete admin-c",
        "clusters get admin-c",
    ),
    "isolation": (
        "ns-isolation-policy list standalone",
        f"ns-isolation-policy set standalone p {_ISOLATION}",
        "ns-isolation-policy list standalone",
        "ns-isolation-policy get standalone p",
        "ns-isolation-policy brokers standalone",
        "ns-isolation-policy broker standalone --broker {broker}",
        "ns-isolation-policy delete standalone p",
        "ns-isolation-policy get standalone p",
    ),
    "settings": (
        "brokers update-dynamic-config -c dispatcherMaxReadBatchSize -v 40",
        "brokers get-all-dynamic-config",
        "brokers delete-dynamic-config -c dispatcherMaxReadBatchSize",
        "brokers get-all-dynamic-config",
    ),
    "racks": (
        f"bookies set-bookie-rack {_RACK} -r /r1 -g default -hn h",
        f"bookies get-bookie-rack {_RACK}",
        "bookies racks-placement",
        f"bookies delete-bookie-rack {_RACK}",
        f"bookies get-bookie-rack {_RACK}",
    ),
    "resource groups": (
        "resourcegroups list",
        "resourcegroups create g -mp 10 -bp 1000 -md 20 -bd 2000",
        "resourcegroups get g",
        "resourcegroups update g -mp 20",
        "resourcegroups get g",
        "resourcegroups delete g",
        "resourcegroups get g",
    ),
    "schemas": (
        "schemas get {topic}",
        "schemas upload {topic} -f {files}/schema.json",
        "schemas get {topic}",
        "schemas get {topic} -v 0",
        "schemas get {topic} -a",
        "schemas metadata {topic}",
        "schemas compatibility {topic} -f {files}/schema.json",
        "schemas extract {topic}-x -j {jar} -c org.apache.pulsar.common.naming.TopicVersion -t avro -n",
        "schemas delete {topic} -f",
        "schemas get {topic}",
    ),
    "permissions of a namespace": (
        "namespaces permissions {ns}",
        "namespaces grant-permission {ns} --role r --actions produce,consume",
        "namespaces permissions {ns}",
        "namespaces revoke-permission {ns} --role r",
        "namespaces permissions {ns}",
        "namespaces grant-subscription-permission {ns} -s s -rs r",
        "namespaces subscription-permission {ns}",
        "namespaces revoke-subscription-permission {ns} -s s --role r",
        "namespaces subscription-permission {ns}",
    ),
    "permissions of a topic": (
        "topics permissions {topic}",
        "topics grant-permission {topic} --role r --actions produce,consume",
        "topics permissions {topic}",
        "topics revoke-permission {topic} --role r",
        "topics permissions {topic}",
        "persistent grant-permission {topic} --role r --actions produce",
        "persistent permissions {topic}",
        "persistent revoke-permission {topic} --role r",
        "persistent revoke-permission {topic} --role r",
    ),
    "deduplication of a topic, the old way": (
        "topics enable-deduplication {topic}",
        "topics get-deduplication-enabled {topic}",
        "topics disable-deduplication {topic}",
        "topics get-deduplication-enabled {topic}",
    ),
    "properties of a topic": (
        "topics update-properties {topic} -p a=b",
        "topics get-properties {topic}",
        "topics remove-properties {topic} -k a",
        "topics get-properties {topic}",
    ),
    "bundles": (
        "topics lookup {topic}",
        "topics bundle-range {topic}",
        "namespaces bundles {ns}",
        "namespaces split-bundle {ns} -b {bundle} -san range_equally_divide",
        "namespaces bundles {ns}",
        # The broker's own topics count, of which the two have others.
        "namespaces split-bundle {ns} -bt LARGEST -u",
    ),
    "unloads": (
        "topics unload {topic}",
        "namespaces unload {ns} -b 0x00000000_0x40000000",
        "namespaces unload {ns}",
    ),
    "resource quotas": (
        "resource-quotas get -n {ns} -b {bundle}",
        "resource-quotas set -n {ns} -b {bundle} -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100",
        "resource-quotas get -n {ns} -b {bundle}",
        "resource-quotas reset-namespace-bundle-quota -n {ns} -b {bundle}",
        "resource-quotas get -n {ns} -b {bundle}",
        "resource-quotas get",
    ),
    "backlogs": (
        "topics skip {topic} -s s -n 1",
        "topics peek-messages {topic} -s s -n 5",
        "topics expire-messages {topic} -s s -t 3600",
        "topics clear-backlog {topic} -s s",
        "topics peek-messages {topic} -s s -n 5",
        "topics reset-cursor {topic} -s s -m earliest",
        "topics reset-cursor {topic} -s s -t 1h",
        "topics expire-messages {topic} -s s -p {ledger}:1",
        "topics get-subscription-properties {topic} -s s",
        "topics update-subscription-properties {topic} -s s -p a=b",
        "topics get-subscription-properties {topic} -s s",
        "topics update-subscription-properties {topic} -s s -c",
        "topics get-subscription-properties {topic} -s s",
        "topics subscriptions {topic}",
        "topics unsubscribe {topic} -s t",
        "topics subscriptions {topic}",
    ),
    "a topic ends": (
        "topics terminate {topic}",
        "topics terminate {topic}",
        "topics truncate {topic}",
        "topics delete {topic}",
        "topics delete {topic} -f",
        "topics delete {topic} -f",
        "topics list {ns}",
    ),
    "partitions": (
        "topics create-partitioned-topic {topic}-q -p 2 -m owner=a",
        "topics create-partitioned-topic {topic}-q -p 2",
        "topics list-partitioned-topics {ns}",
        "topics get-partitioned-topic-metadata {topic}-q",
        "topics get-properties {topic}-q",
        "topics update-partitioned-topic {topic}-q -p 1",
        "topics update-partitioned-topic {topic}-q -p 3",
        "topics partitioned-lookup {topic}-q -s",
        "topics create-subscription {topic}-q -s s",
        "topics subscriptions {topic}-q",
        "topics list {ns}",
        "topics delete {topic}-q",
        "topics delete-partitioned-topic {topic}-q",
        "topics delete-partitioned-topic {topic}-q -f",
        "topics delete-partitioned-topic {topic}-q",
    ),
    "partitions end": (
        "topics terminate {parts}",
        "topics terminate {parts}-partition-0",
        "topics partitioned-terminate {parts}",
        "topics last-message-id {parts}-partition-1",
    ),
    "non-persistent": (
        "non-persistent list {ns}",
        "non-persistent list-in-bundle {ns} -b {bundle}",
        "non-persistent lookup non-{topic}",
        "non-persistent stats non-{topic}",
        "non-persistent stats-internal non-{topic}",
        "non-persistent create-partitioned-topic non-{topic}-q -p 2",
        "non-persistent get-partitioned-topic-metadata non-{topic}-q",
    ),
    "transactions": (
        "transactions coordinators-list",
        "transactions coordinator-stats",
        "transactions coordinator-stats -c {most}",
        "transactions coordinator-internal-stats -c {most}",
        "transactions coordinator-internal-stats -c {most} -m",
        "transactions transaction-metadata -m {most} -l {least}",
        "transactions transaction-in-buffer-stats -m {most} -l {least} -t {topic}",
        "transactions transaction-in-pending-ack-stats -m {most} -l {least} -t {topic} -s s",
        "transactions transaction-buffer-stats -t {topic}",
        "transactions transaction-buffer-stats -t {topic} -l -s",
        "transactions pending-ack-stats -t {topic} -s s",
        "transactions pending-ack-stats -t {topic} -s s -l",
        "transactions pending-ack-internal-stats -t {topic} -s s",
        "transactions buffer-snapshot-internal-stats -t {topic}",
        "transactions position-stats-in-pending-ack -t {topic} -s s -l {ledger} -e 0",
        "transactions slow-transactions -t 0s",
        "transactions abort-transaction -m {most} -l {least}",
        "transactions transaction-metadata -m {most} -l {least}",
        "transactions scale-transactionCoordinators -r 20",
        "transactions coordinators-list",
    ),
    "anti-affinity": (
        "namespaces set-anti-affinity-group {ns} -g admin-one",
        "namespaces get-anti-affinity-group {ns}",
        "namespaces get-anti-affinity-namespaces -g admin-one -c standalone -p public",
        "namespaces delete-anti-affinity-group {ns}",
        "namespaces get-anti-affinity-group {ns}",
    ),
}
#: Ends the broker: run last of all.
LAST: Final = "brokers shutdown"
_VERBS: Final = ("get", "set", "get", "remove", "delete", "clear", "get")
#: A command that is about a policy, one of several about it.
POLICY: Final = re.compile(r"(\w+) (get|set|remove|delete|clear)-(.+)")


@dataclass(frozen=True, slots=True)
class Story:
    """Lines, run one after the other in a namespace of their own."""

    title: str
    lines: tuple[str, ...]


def stories_of(commands: Iterable[Command]) -> list[Story]:
    """Every command, at least once."""
    lines = {command.words: line_of(command) for command in commands if not _is_in_chain(command.words)}
    told = [Story(title, chain) for title, chain in CHAINS.items()]
    policies: dict[str, dict[str, str]] = {}
    for words, line in lines.items():
        if (found := POLICY.fullmatch(words)) and words != "topics get-message-id":
            # Some are read by another number than they are set by.
            policies.setdefault(f"{found[1]} {found[3].removesuffix('s')}", {})[found[2]] = line
        elif words != LAST:
            told.append(Story(words, (line,)))
    for title, verbs in policies.items():
        told.append(Story(title, tuple(verbs[verb] for verb in _VERBS if verb in verbs)))
    return [*sorted(told, key=lambda one: one.title), *(Story(LAST, (lines[LAST],)) for _ in lines if _ == LAST)]


def _is_in_chain(words: str) -> bool:
    return any(f"{line} ".startswith(f"{words} ") for chain in CHAINS.values() for line in chain)
