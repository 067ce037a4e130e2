"""Which brokers an operator lets a namespace go to: isolation policies and failure domains. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Json, decode_document
from geminga.broker.load_rules.members import part, text, texts
from geminga.model.errors import CorruptionError
from geminga.wire.pulsar.topic_pattern import LinearPattern

CLUSTERS_PATH: Final = "/admin/clusters"
#: Of a number of brokers; Python reads no more than some thousand of them.
_DIGITS_MAX: Final = 20
#: The failure domain of a broker that is in none.
DOMAIN_OF_THE_REST: Final = "default"


def isolation_path(cluster: str) -> str:
    """Where the policies of a cluster are."""
    return f"{CLUSTERS_PATH}/{cluster}/namespaceIsolationPolicies"


def domains_path(cluster: str) -> str:
    """Whose children are a cluster's failure domains."""
    return f"{CLUSTERS_PATH}/{cluster}/failureDomain"


def host_of(broker: str) -> str:
    """Of its id: what stands before the port."""
    return broker.rpartition(":")[0] or broker


class _Patterns:
    """Regular expressions one of which has to match as a whole, in linear time."""

    def __init__(self, patterns: Iterable[str], tell: Callable[[str], None]) -> None:
        """One that can not be read matches nothing; ``tell`` gets a sentence of it."""
        self._compiled: list[LinearPattern] = []
        for pattern in patterns:
            compiled = LinearPattern.compile(pattern)
            if compiled is None:
                tell(f"{pattern!r} is no regular expression, or none for RE2: it matches nothing")
            else:
                self._compiled.append(compiled)

    def match(self, value: str) -> bool:
        return any(pattern.matches_text(value) for pattern in self._compiled)


class IsolationPolicy(NamedTuple):
    """One of them."""

    namespaces: _Patterns
    primary: _Patterns
    secondary: _Patterns
    #: Fewer primary brokers than that: secondary ones take bundles too.
    primaries_least: int


class Isolation:
    """All policies of a cluster, in the order in which they stand."""

    def __init__(
        self, policies: Mapping[str, IsolationPolicy] = MappingProxyType({}), problems: Sequence[str] = ()
    ) -> None:
        self._policies = list(policies.values())
        #: What of the policies can not be read, and is left out: a sentence each, with the policy's name.
        self.problems = tuple(problems)

    def brokers_for(self, namespace: str, brokers: Collection[str]) -> list[str]:
        """Those of ``brokers`` that bundles of a namespace may go to, in that order."""
        policy = next((one for one in self._policies if one.namespaces.match(namespace)), None)
        if policy is None:
            return [broker for broker in brokers if not self._is_primary_of_any(host_of(broker))]
        primary = [broker for broker in brokers if policy.primary.match(host_of(broker))]
        if len(primary) >= policy.primaries_least:
            return primary
        found = set(primary)
        return primary + [b for b in brokers if b not in found and policy.secondary.match(host_of(b))]

    def _is_primary_of_any(self, host: str) -> bool:
        return any(policy.primary.match(host) for policy in self._policies)


NO_ISOLATION: Final = Isolation()


def decode_isolation(path: str, value: bytes) -> Isolation:
    """What can not be read of a policy is left out, and told in ``problems``; the others hold.

    Raises CorruptionError naming the path where the document itself can not be read.
    """
    document = decode_document(path, value)
    policies: dict[str, IsolationPolicy] = {}
    problems: list[str] = []
    for name in document:

        def tell(problem: str, name: str = name) -> None:
            problems.append(f"metadata node {path}: policy {name!r}: {problem}")

        try:
            policies[name] = _policy(path, part(path, document, name), tell)
        except CorruptionError as error:
            problems.append(f"policy {name!r} is left out: {error}")
    return Isolation(policies, problems)


def _policy(path: str, document: Mapping[str, Json], tell: Callable[[str], None]) -> IsolationPolicy:
    namespaces, primary, secondary = (
        _Patterns(texts(path, document, name), tell) for name in ("namespaces", "primary", "secondary")
    )
    failover = part(path, document, "auto_failover_policy")
    kind = text(path, failover, "policy_type")
    if kind != "min_available":
        raise CorruptionError(f"metadata node {path}: policy_type is min_available, not {kind!r}")
    least = part(path, failover, "parameters").get("min_limit")
    is_number = isinstance(least, int | str) and not isinstance(least, bool) and str(least).strip().isdecimal()
    if not is_number or len(str(least)) > _DIGITS_MAX:
        raise CorruptionError(f"metadata node {path}: min_limit is a whole number, not {str(least)[:80]!r}")
    return IsolationPolicy(namespaces, primary, secondary, int(str(least)))


def decode_domain(path: str, value: bytes) -> list[str]:
    """The ids of the brokers of a failure domain. Raises CorruptionError."""
    return texts(path, decode_document(path, value), "brokers")
