"""What may happen to the plans' topic under the policies in force there: the cases in which it can not be relied on.

The subscription that holds the topic has everything in its backlog. It loses that to a time to live and to a backlog
quota that evicts, and itself to subscription expiry; then a broker that deletes unused topics may delete the topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a backlog quota does when it is reached, if it makes room at the subscriptions' cost.
EVICTION: Final = "consumer_backlog_eviction"
#: What keeps every plan: as a topic policy, minutes and megabytes.
RETENTION: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass(frozen=True, slots=True)
class PlanPolicies:
    """In force on the topic: its own, its namespace's, or the broker's; None: could not be learnt."""

    #: Seconds; 0 and below: none.
    ttl_s: int | None = None
    #: Minutes; 0 and below: none.
    subscription_expiry_minutes: int | None = None
    #: What each backlog quota does that has a limit.
    quota_actions: tuple[str, ...] | None = None


def quota_actions(document: object) -> tuple[str, ...]:
    """The actions of the quotas that have a limit, of a map as the admin REST gives it."""
    quotas = document.values() if isinstance(document, dict) else ()
    found = []
    for quota in quotas:
        if isinstance(quota, dict) and any(_is_limit(quota.get(key)) for key in ("limit", "limitSize", "limitTime")):
            found.append(str(quota.get("policy")))
    return tuple(found)


def _is_limit(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def dangers(topic: str, namespace: str, subscription: str, policies: PlanPolicies) -> list[str]:
    """What could empty or delete the topic, each with what to do against it."""
    found = []
    if policies.ttl_s is not None and policies.ttl_s > 0:
        found.append(
            f"messages live for {policies.ttl_s} s (time to live): switch that off for the topic "
            f"(pulsar-admin topics set-message-ttl --ttl 0 {topic})"
        )
    expiry = policies.subscription_expiry_minutes
    if expiry is not None and expiry > 0:
        found.append(
            f"subscriptions without consumers are deleted after {expiry} minutes, and so would be {subscription}: "
            f"switch that off (pulsar-admin namespaces set-subscription-expiration-time --time 0 {namespace})"
        )
    if policies.quota_actions is not None and EVICTION in policies.quota_actions:
        found.append(
            f"a backlog quota evicts what is not consumed ({EVICTION}): give the topic one that does not "
            f"(pulsar-admin topics set-backlog-quota --limitSize 10G --policy producer_request_hold {topic})"
        )
    return found
