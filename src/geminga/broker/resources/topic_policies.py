"""The policies of one topic: Pulsar's ``TopicPolicies``, read through typed properties.

Field names are those of Pulsar's class and are the interface; an absent field means "not set here".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geminga.broker.resources.documents import Json
from geminga.broker.resources.policies import Retention, quotas_of, retention_of


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The document as stored."""

    document: Mapping[str, Json]

    @property
    def deduplication_enabled(self) -> bool | None:
        """``deduplicationEnabled``; None: not set here."""
        value = self.document.get("deduplicationEnabled")
        return value if isinstance(value, bool) else None

    @property
    def message_ttl_seconds(self) -> int | None:
        """``messageTTLInSeconds``; None: not set here, 0: never."""
        return self.number("messageTTLInSeconds")

    @property
    def retention(self) -> Retention | None:
        """``retentionPolicies``; None: not set here."""
        return retention_of(self.document.get("retentionPolicies"))

    @property
    def backlog_quotas(self) -> dict[str, dict[str, Json]]:
        """``backLogQuotaMap``: quota type -> quota."""
        return quotas_of(self.document.get("backLogQuotaMap"))

    @property
    def delayed_delivery(self) -> tuple[bool | None, int | None]:
        """``delayedDeliveryEnabled`` and ``delayedDeliveryTickTimeMillis``; None: not set here."""
        value = self.document.get("delayedDeliveryEnabled")
        return value if isinstance(value, bool) else None, self.number("delayedDeliveryTickTimeMillis")

    @property
    def subscription_types_enabled(self) -> tuple[str, ...]:
        """``subscriptionTypesEnabled``; empty: not set here."""
        value = self.document.get("subscriptionTypesEnabled")
        return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()

    def number(self, key: str) -> int | None:
        """Any numeric field; None if it is not set."""
        value = self.document.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None
