"""What each parameter is given: by its name, or by the command that has it.

In the texts ``{ns}`` is the namespace of the story, ``{topic}`` a topic in it with three messages and the subscriptions
``s`` and ``t``, ``{bundle}`` its bundle, ``{ledger}`` that of its messages, ``{parts}`` a topic of two partitions,
``{most}`` and ``{least}`` a transaction that is open on the topic, ``{empty}`` another namespace, ``{files}`` a folder
with a schema in it, ``{broker}`` the broker's id and ``{jar}`` an archive of Java classes.
"""

from __future__ import annotations

from typing import Final

from tools.interop.admin.commands import Command, Parameter

#: Of options by their longest name, of places by what they are.
VALUES: Final = {
    "--keys": "a,b",
    "tenant-name": "public",
    "cluster-name": "standalone",
    "tenant/namespace": "{ns}",
    "tenant/cluster": "public/standalone",
    "persistent://tenant/namespace/topic": "{topic}",
    "persistent://property/cluster/namespace/topic": "{topic}",
    "non-persistent://tenant/namespace/topic": "non-{topic}",
    "--actions": "produce,consume",
    "--bundle": "0x00000000_0x40000000",
    "--bookkeeper-ack-quorum": "1",
    "--bookkeeper-ensemble": "1",
    "--bookkeeper-write-quorum": "1",
    "--clusters": "standalone",
    "--cluster": "standalone",
    "--datetime": "2020-01-02T03:04:05.000Z",
    "--delete-mode": "delete_when_no_subscriptions",
    "--driver": "filesystem",
    "--entry-filters-name": "one",
    "--group": "one",
    "--primary-group": "one",
    "--key": "a",
    "--value": "b",
    "--properties": "a=b,c=d",
    "--limit": "10M",
    "--policy": "producer_exception",
    "--max-inactive-duration": "7d",
    "--expireTime": "1h",
    "--messageTTL": "100s",
    "--ttl": "100s",
    "--lag": "1h",
    "--ml-mark-delete-max-rate": "1.5",
    "--partitions": "4",
    "--resource-group-name": "default",
    "--role": "r",
    "--roles": "r",
    "--size": "1G",
    "--size-threshold": "10M",
    "--strategy": "FULL",
    "--sub": "s",
    "--sub-name": "s",
    "--subscription": "s",
    "--subscription-name": "s",
    "--subscription-auth-mode": "Prefix",
    "--threshold": "10M",
    "--time": "3h",
    "--topic": "{topic}",
    "--types": "Shared,Failover",
    "--url": "{broker}",
    "--ledgerId": "{ledger}",
    "--ledger-id": "{ledger}",
    "--entryId": "1",
    "--entry-id": "1",
    "--least-sig-bits": "7",
    "--most-sig-bits": "0",
    "--coordinator-id": "0",
    "--source": "{topic}",
    "--topics": "{topic}-shadow",
}
#: Of these types where the name says nothing.
OF_TYPES: Final = {"int": "10", "long": "10", "Integer": "10", "Long": "10", "double": "1.5"}
#: Options that commands want besides those that they say they need: by the command's words, or by their end.
MORE: Final = {
    "set-delayed-delivery": "--enable -t 2s",
    "set-auto-topic-creation": "-e -t partitioned -n 2",
    "set-auto-subscription-creation": "-e",
    "set-deduplication": "--enable",
    "set-backlog-quota": "-l 10M",
    "set-dispatch-rate": "-md 100 -bd 1000 -dt 2",
    "set-subscription-dispatch-rate": "-md 100 -bd 1000 -dt 2",
    "set-replicator-dispatch-rate": "-md 100 -bd 1000 -dt 2",
    "set-publish-rate": "-m 100 -b 1000",
    "set-subscribe-rate": "-sr 10 -st 30",
    "set-encryption-required": "--enable",
    "set-inactive-topic-policies": "-e",
    "set-is-allow-auto-update-schema": "--disable",
    "set-schema-validation-enforce": "--enable",
    "set-schema-autoupdate-strategy": "-c Full",
    "namespaces set-schema-compatibility-strategy": "-c FULL",
    "set-offload-threshold": "-t 1h",
    "set-persistence": "-e 1 -w 1 -a 1 -r 1.5",
    "set-replicated-subscription-status": "-d",
    "namespaces get-topic-positions": "--bundle {bundle} -tl {topic}",
}
#: Whole lines (what stands behind the command's words) where the values above do not do.
LINES: Final = {
    "topics list": "{ns} -td persistent",
    "topics create": "{topic}-new -m owner=a",
    "topics create-partitioned-topic": "{topic}-new -p 4 -m owner=a",
    "persistent create-partitioned-topic": "{topic}-new -p 4",
    "non-persistent create-partitioned-topic": "non-{topic}-new -p 4",
    "topics create-subscription": "{topic} -s new -m earliest -p a=b",
    "persistent create-subscription": "{topic} -s new",
    "persistent reset-cursor": "{topic} -s s -t 1h",
    "topics delete": "{topic} -f",
    "persistent delete": "{topic} --force",
    "topics expire-messages": "{topic} -s s -t 3600",
    "topics get-message-id": "{topic} -d 2020-01-02T03:04:05.000Z",
    "topics examine-messages": "{topic} -i latest -m 1",
    "topics peek-messages": "{topic} -s s -n 2",
    "topics reset-cursor": "{topic} -s s -t 1h",
    "topics get-backlog-size": "{topic} -m {ledger}:0",
    "topics trim-topic": "{topic}",
    "topics offload-status": "{topic}",
    "topics update-properties": "{topic} -p a=b",
    "topics remove-properties": "{topic} -k a",
    "topics update-subscription-properties": "{topic} -s s -p a=b",
    "topics create-shadow-topic": "{topic}-shadow -s {topic}",
    "topics set-shadow-topics": "{topic} -t {topic}-shadow",
    "namespaces create": "{ns}-new -b 4",
    "namespaces delete": "{empty}",
    "namespaces topics": "{ns} -m PERSISTENT",
    "namespaces clear-backlog": "{ns} -force",
    "namespaces grant-subscription-permission": "{ns} -s s -rs r",
    "namespaces revoke-subscription-permission": "{ns} -s s --role r",
    "namespaces split-bundle": "{ns} -b 0x00000000_0x40000000 -san range_equally_divide",
    "namespaces set-subscription-expiration-time": "{ns} -t 10",
    "namespaces set-property": "{ns} -k a -v b",
    "namespaces set-properties": "{ns} -p a=b,c=d",
    "namespaces update-migration-state": "{ns} --migrated",
    "namespaces set-offload-policies": "{ns} -d filesystem -oat 10M",
    "topics set-offload-policies": "{topic} -d filesystem -oat 10M",
    "topicPolicies set-offload-policies": "{topic} -d filesystem -t 1000000",
    "non-persistent list-in-bundle": "{ns} -b {bundle}",
    "broker-stats allocator-stats": "default",
    "transactions scale-transactionCoordinators": "-r 20",
    "transactions slow-transactions": "-t 10s",
    "resource-quotas get": "-n {ns} -b 0x00000000_0x40000000",
    "resource-quotas set": "-n {ns} -b 0x00000000_0x40000000 -mi 10 -mo 20 -bi 1000 -bo 2000 -mem 100",
    "resource-quotas reset-namespace-bundle-quota": "-n {ns} -b 0x00000000_0x40000000",
    "brokers shutdown": "-m 10",
}
#: Commands for topics with partitions.
PARTITIONED: Final = frozenset(
    {
        *(
            f"{group} {name}"
            for group in ("topics", "persistent")
            for name in (
                "partitioned-stats",
                "partitioned-stats-internal",
                "get-partitioned-topic-metadata",
                "update-partitioned-topic",
                "delete-partitioned-topic",
            )
        ),
        "topics partitioned-lookup",
        "topics partitioned-terminate",
        "topics create-missed-partitions",
    }
)


def line_of(command: Command) -> str:
    """The words of a sensible call; raises KeyError where a parameter that is needed has no value."""
    if command.words in LINES:
        return f"{command.words} {LINES[command.words]}"
    parts = [command.words]
    for parameter in command.parameters:
        if parameter.is_required:
            parts += [max(parameter.names, key=len)] if parameter.names else []
            parts += [value_of(command, parameter)] if parameter.has_value else []
    parts += [text for end, text in MORE.items() if f" {command.words}".endswith(f" {end}")]
    return " ".join(parts)


def value_of(command: Command, parameter: Parameter) -> str:
    """A value."""
    value = VALUES.get(parameter.name) or OF_TYPES.get(parameter.type)
    if value is None:
        raise KeyError(f"{command.words}: no value for {parameter.name} ({parameter.type})")
    return "{parts}" if value == "{topic}" and command.words in PARTITIONED else value
