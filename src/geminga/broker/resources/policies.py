"""The policies of a namespace: Pulsar's JSON document, read through typed properties.

The document is kept whole, so that fields this version does not know survive a change. Field names are those of
Pulsar's ``Policies`` and are the interface; an absent field means "not set here: the broker's own setting holds".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from geminga.broker.resources.documents import Document, Json
from geminga.model.errors import PreconditionFailedError

#: Hash range of a namespace: bundles partition [FIRST, LAST].
FIRST_BOUNDARY: Final = "0x00000000"
LAST_BOUNDARY: Final = "0xffffffff"
#: Pulsar's defaultNumberOfNamespaceBundles.
BUNDLES_DEFAULT: Final = 4
#: More bundles than hash values of the top byte make no sense; Pulsar's namespaceBundle limit is 128.
BUNDLES_MAX: Final = 128

#: ``SchemaAutoUpdateCompatibilityStrategy``, which the present field replaces -> its value there.
AUTO_UPDATE_STRATEGIES: Final = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}


class AutoTopicCreation(NamedTuple):
    """``autoTopicCreationOverride`` of a namespace."""

    allowed: bool
    #: "partitioned" or "non-partitioned"; None with ``allowed`` False.
    topic_type: str | None
    partitions: int | None


class Retention(NamedTuple):
    """``retention_policies``: -1 is without limit, 0 is none."""

    time_minutes: int
    size_mb: int

    @property
    def limits(self) -> tuple[int, int]:
        """(milliseconds, bytes); -1 stays "without limit"."""
        time_ms = self.time_minutes * 60_000 if self.time_minutes >= 0 else -1
        return time_ms, self.size_mb << 20 if self.size_mb >= 0 else -1


@dataclass(frozen=True, slots=True)
class Policies:
    """A namespace's policies as stored, with the version of their metadata node."""

    document: Mapping[str, Json]
    version: int = -1

    @property
    def replication_clusters(self) -> tuple[str, ...]:
        """Clusters this namespace lives in."""
        return _strings(self.document.get("replication_clusters"))

    @property
    def bundle_boundaries(self) -> tuple[str, ...]:
        """Hash boundaries as hex words, ascending, first and last included."""
        bundles = self.document.get("bundles")
        found = _strings(bundles.get("boundaries")) if isinstance(bundles, dict) else ()
        return found or (FIRST_BOUNDARY, LAST_BOUNDARY)

    @property
    def is_deleted(self) -> bool:
        """Whether the namespace is being deleted: nothing may be created in it any more."""
        return self.document.get("deleted") is True

    @property
    def deduplication_enabled(self) -> bool | None:
        """``deduplicationEnabled``; None: the broker's setting holds."""
        return _flag(self.document.get("deduplicationEnabled"))

    @property
    def message_ttl_seconds(self) -> int | None:
        """``message_ttl_in_seconds``; None: the broker's setting holds, 0: never."""
        return _number(self.document.get("message_ttl_in_seconds"))

    @property
    def retention(self) -> Retention | None:
        """``retention_policies``; None: the broker's setting holds."""
        return retention_of(self.document.get("retention_policies"))

    @property
    def backlog_quotas(self) -> dict[str, dict[str, Json]]:
        """``backlog_quota_map``: quota type (``destination_storage``, ``message_age``) -> quota."""
        return quotas_of(self.document.get("backlog_quota_map"))

    @property
    def delayed_delivery(self) -> tuple[bool | None, int | None]:
        """``delayed_delivery_policies``: whether messages wait, and the tick in ms; None: the broker's setting."""
        value = self.document.get("delayed_delivery_policies")
        if not isinstance(value, dict):
            return None, None
        return _flag(value.get("active")), _number(value.get("tickTime"))

    @property
    def auto_topic_creation(self) -> AutoTopicCreation | None:
        """``autoTopicCreationOverride``; None: the broker's setting holds."""
        value = self.document.get("autoTopicCreationOverride")
        if not isinstance(value, dict):
            return None
        topic_type = value.get("topicType")
        return AutoTopicCreation(
            value.get("allowAutoTopicCreation") is True,
            topic_type if isinstance(topic_type, str) else None,
            _number(value.get("defaultNumPartitions")),
        )

    @property
    def auto_subscription_creation(self) -> bool | None:
        """``autoSubscriptionCreationOverride``; None: the broker's setting holds."""
        value = self.document.get("autoSubscriptionCreationOverride")
        return _flag(value.get("allowAutoSubscriptionCreation")) if isinstance(value, dict) else None

    @property
    def schema_compatibility_strategy(self) -> str | None:
        """``schema_compatibility_strategy`` unless UNDEFINED; None: the broker's setting holds."""
        value = self.document.get("schema_compatibility_strategy")
        if isinstance(value, str) and value != "UNDEFINED":
            return value
        # Set by old administration tools only.
        old = self.document.get("schema_auto_update_compatibility_strategy")
        return AUTO_UPDATE_STRATEGIES.get(old) if isinstance(old, str) else None

    @property
    def schema_validation_enforced(self) -> bool:
        """``schema_validation_enforced``: producers without a schema are refused where there is one."""
        return self.document.get("schema_validation_enforced") is True

    @property
    def allow_auto_update_schema(self) -> bool | None:
        """``is_allow_auto_update_schema``; None: the broker's setting holds."""
        return _flag(self.document.get("is_allow_auto_update_schema"))

    @property
    def subscription_types_enabled(self) -> tuple[str, ...]:
        """``subscription_types_enabled``; empty: all that the broker allows."""
        return _strings(self.document.get("subscription_types_enabled"))

    def number(self, key: str) -> int | None:
        """Any numeric field, such as ``max_producers_per_topic``; None if it is not set."""
        return _number(self.document.get(key))


def retention_of(value: Json) -> Retention | None:
    """Pulsar's ``RetentionPolicies``; None if there is none."""
    if not isinstance(value, dict):
        return None
    minutes = _number(value.get("retentionTimeInMinutes"))
    size = _number(value.get("retentionSizeInMB"))
    return Retention(minutes or 0, size or 0)


def quotas_of(value: Json) -> dict[str, dict[str, Json]]:
    """A map of backlog quotas; what is none is left out."""
    return {kind: quota for kind, quota in value.items() if isinstance(quota, dict)} if isinstance(value, dict) else {}


def bundle_boundaries(count: int) -> list[str]:
    """``count`` equal bundles: ``count + 1`` boundaries as eight hex digits. Raises outside 1..128."""
    if not 1 <= count <= BUNDLES_MAX:
        raise PreconditionFailedError(f"a namespace has 1 to {BUNDLES_MAX} bundles, not {count}")
    size = (1 << 32) // count
    return [f"0x{index * size:08x}" for index in range(count)] + [LAST_BOUNDARY]


def new_policies(replication_clusters: Sequence[str], bundles: int = BUNDLES_DEFAULT) -> Document:
    """What a namespace created without a body holds."""
    boundaries: list[Json] = list(bundle_boundaries(bundles))
    return {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": list(replication_clusters),
        "bundles": {"boundaries": boundaries, "numBundles": bundles},
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
    }


def completed(document: Mapping[str, Json], replication_clusters: Sequence[str]) -> Document:
    """A body given at creation, with what it leaves out filled in; raises where a value makes no sense."""
    bundles = document.get("bundles")
    count = BUNDLES_DEFAULT
    if isinstance(bundles, dict):
        given = _strings(bundles.get("boundaries"))
        number = _number(bundles.get("numBundles"))
        count = number or (len(given) - 1 if len(given) > 1 else BUNDLES_DEFAULT)
        if given and (len(given) != count + 1 or list(given) != sorted(given, key=_boundary_value)):
            raise PreconditionFailedError(f"{count} bundles need {count + 1} ascending boundaries, not {given}")
    whole = new_policies(replication_clusters, count)
    whole.update({key: value for key, value in document.items() if value is not None and key != "bundles"})
    if isinstance(bundles, dict) and bundles.get("boundaries"):
        whole["bundles"] = {"boundaries": bundles["boundaries"], "numBundles": count}
    if not whole.get("replication_clusters"):
        whole["replication_clusters"] = list(replication_clusters)
    return whole


def _boundary_value(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise PreconditionFailedError(f"bundle boundary {text!r}: expected hex digits such as 0x40000000") from error


def _strings(value: Json) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None
