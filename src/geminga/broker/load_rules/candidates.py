"""Which brokers a bundle may go to, before a strategy chooses among them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from geminga.broker.load_rules.cluster_load import SYSTEM_NAMESPACE, ClusterLoad, Rules
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.isolation import DOMAIN_OF_THE_REST
from geminga.broker.load_rules.members import namespace_of


def permitted(bundle: str, cluster: ClusterLoad, rules: Rules, *, is_persistent: bool = True) -> list[str]:
    """Brokers that isolation policies and the brokers themselves let take a bundle, in order of their names.

    ``is_persistent``: of the topic that asks. Who is isolated is asked for no such thing, as in Pulsar.
    """
    takers = [
        broker
        for broker in cluster.brokers
        if (cluster.reports[broker].takes_persistent if is_persistent else cluster.reports[broker].takes_non_persistent)
    ]
    return rules.isolation.brokers_for(namespace_of(bundle), takers)


def candidates(
    bundle: str, cluster: ClusterLoad, rules: Rules, config: LoadConfig, *, is_persistent: bool = True
) -> list[str]:
    """Of the permitted ones those that are best by rules, which give way where none would be left."""
    allowed = permitted(bundle, cluster, rules, is_persistent=is_persistent)
    found = [broker for broker in allowed if cluster.topics(broker) <= config.topics_max] or allowed
    found = apart(bundle, found, cluster, rules, config)
    if config.distributes_evenly or namespace_of(bundle) == SYSTEM_NAMESPACE:
        found = _fewest(found, cluster.namespace_bundles(namespace_of(bundle)))
    found = [broker for broker in found if cluster.reports[broker].manager in ("", config.manager)]
    return found or allowed


def apart(bundle: str, brokers: list[str], cluster: ClusterLoad, rules: Rules, config: LoadConfig) -> list[str]:
    """Those that hold the fewest namespaces of the bundle's anti-affinity group, in the domain that does."""
    group = rules.groups.get(namespace_of(bundle))
    if group is None or not brokers:
        return brokers
    counts = cluster.group_namespaces(group, rules.groups)
    if config.failure_domains and rules.domains:
        domains = {broker: rules.domains.get(broker, DOMAIN_OF_THE_REST) for broker in brokers}
        in_domain: dict[str, int] = {}
        for broker, domain in domains.items():
            in_domain[domain] = in_domain.get(domain, 0) + counts.get(broker, 0)
        least = min(in_domain.values())
        brokers = [broker for broker in brokers if in_domain[domains[broker]] == least]
    return _fewest(brokers, counts)


def _fewest(brokers: list[str], counts: Mapping[str, int]) -> list[str]:
    least = min((counts.get(broker, 0) for broker in brokers), default=0)
    return [broker for broker in brokers if counts.get(broker, 0) == least]


def may_leave(bundle: str, broker: str, cluster: ClusterLoad, rules: Rules) -> bool:
    """Whether a bundle that leaves this broker would find another, and not come back for its anti-affinity group."""
    allowed = permitted(bundle, cluster, rules)
    if not set(allowed) - {broker}:
        return False
    group = rules.groups.get(namespace_of(bundle))
    if group is None:
        return True
    counts = cluster.group_namespaces(group, rules.groups)
    numbers = [counts.get(one, 0) for one in allowed]
    least = min(numbers)
    if least == 0 or (broker in allowed and counts.get(broker, 0) > least):
        return True
    return any(number != least for number in numbers)
