"""Isolation policies and failure domains: what is kept, under races, and what has to be unloaded."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.coercion import BodyError, encode_document
from geminga.broker.load_rules.isolation import decode_isolation, isolation_path
from geminga.broker.resources.documents import DocumentStore
from geminga.broker.resources.isolation import (
    DOMAINS_MAX,
    POLICIES_MAX,
    FailureDomains,
    IsolationPolicies,
    check_failure_domain,
    check_isolation_policy,
    matches,
    namespaces_to_unload,
)
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import ConflictError, NotFoundError, PreconditionFailedError
from geminga.sim import SimWorld, run

NAMES = st.lists(st.sampled_from(["a/b", "a/.*", "c/d", "e/f"]), min_size=1, max_size=4, unique=True)
POLICIES = st.fixed_dictionaries(
    {
        "namespaces": NAMES,
        "primary": st.lists(st.sampled_from(["b1.*", "b2.*"]), min_size=1, max_size=2, unique=True),
        "secondary": st.just(["b3.*"]),
        "auto_failover_policy": st.just(
            {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}}
        ),
    },
    optional={"unload_scope": st.sampled_from(["none", "changed", "all_matching"])},
)


@given(POLICIES, st.none() | POLICIES, st.sampled_from(["a/b", "a/x", "c/d", "e/f", "g/h"]))
def test_a_namespace_is_unloaded_if_what_holds_for_it_may_be_another(policy, before, namespace) -> None:
    is_unloaded = matches([*namespaces_to_unload(policy, before)], namespace)
    scope = policy.get("unload_scope", "changed")
    now = [name for name in policy["namespaces"] if matches([name], namespace)]
    was = [name for name in (before or {"namespaces": []})["namespaces"] if matches([name], namespace)]
    has_moved = before is not None and set(before["primary"]) != set(policy["primary"])
    expected = {
        "none": False,
        "all_matching": bool(now or was),
        "changed": bool(now or was) if has_moved else set(now) != set(was),
    }[scope]
    assert is_unloaded == expected


@given(POLICIES)
def test_what_is_kept_is_what_the_decision_reads(policy) -> None:
    kept = check_isolation_policy(policy)
    assert kept == policy
    isolation = decode_isolation(isolation_path("c"), encode_document({"p": kept}))
    brokers = ["b1.x:8080", "b2.x:8080", "b3.x:8080"]
    primary = [broker for broker in brokers if matches([*policy["primary"]], broker.partition(":")[0])]
    if matches([*policy["namespaces"]], "a/b"):
        assert isolation.brokers_for("a/b", brokers) == primary


@pytest.mark.parametrize("body", [None, [], 3, {"brokers": 3}, {"brokers": [None]}, {"brokers": ["b"] * 2}])
def test_a_domain_is_a_list_of_brokers(body) -> None:
    if body is None:
        assert check_failure_domain(body) == {}
    elif body == {"brokers": ["b", "b"]}:
        assert check_failure_domain(body) == {"brokers": ["b"]}
    else:
        with pytest.raises(BodyError):
            check_failure_domain(body)


def test_policies_set_at_once_are_all_kept_and_limited_in_number() -> None:
    async def story(world: SimWorld) -> None:
        policies = IsolationPolicies(DocumentStore(MemoryMetadataStore(world.node("a").runtime)))
        with pytest.raises(NotFoundError, match="NamespaceIsolationPolicies for cluster c does not exist"):
            await policies.get("c")
        await asyncio.gather(*(policies.set("c", f"p{number}", {"n": number}) for number in range(4)))
        assert set(await policies.get("c")) == {"p0", "p1", "p2", "p3"}
        assert await policies.set("c", "p1", {"n": 9}) == {"n": 1}
        for number in range(4, POLICIES_MAX):
            await policies.set("c", f"p{number}", {})
        with pytest.raises(PreconditionFailedError, match="at most"):
            await policies.set("c", "one more", {})
        assert await policies.set("c", "p0", {"n": 1}) == {"n": 0}
        with pytest.raises(PreconditionFailedError, match="Cluster not empty"):
            await policies.forget("c")

    run(story, seed=1)


def test_a_broker_is_in_one_domain_and_domains_are_limited_in_number() -> None:
    async def story(world: SimWorld) -> None:
        domains = FailureDomains(DocumentStore(MemoryMetadataStore(world.node("a").runtime)))
        await domains.set("c", "d0", {"brokers": ["b1", "b2"]})
        with pytest.raises(ConflictError, match=r"\[b2\] already exists in d0"):
            await domains.set("c", "d1", {"brokers": ["b2"]})
        await domains.set("c", "d0", {"brokers": ["b1"]})
        await domains.set("c", "d1", {"brokers": ["b2"]})
        assert await domains.all("c") == {"d0": {"brokers": ["b1"]}, "d1": {"brokers": ["b2"]}}
        await domains.forget("c")
        assert await domains.all("c") == {}
        with pytest.raises(PreconditionFailedError, match="not valid"):
            await domains.set("c", "a/b", {})
        assert DOMAINS_MAX == 1_000

    run(story, seed=1)
