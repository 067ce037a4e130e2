"""The rules of one topic: what its own policies say, else its namespace's, else the broker's. Pure.

Each policy is taken from the most particular level that sets it, as in Pulsar: the topic's own, the topic's own for all
clusters, namespace, broker. Which policies there are is said by :data:`geminga.broker.policies.core.rows.ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from geminga.broker.core.coercion import Json
from geminga.broker.policies.core.deletion_rows import BACKLOG_QUOTAS, MESSAGE_TTL, RETENTION, SUBSCRIPTION_EXPIRY
from geminga.broker.policies.core.delivery_rows import (
    DEDUPLICATION,
    DEDUPLICATION_SNAPSHOTS,
    DELAYED_DELIVERY,
    SUBSCRIPTION_TYPES_ENABLED,
)
from geminga.broker.policies.core.limit_rows import (
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    MAX_UNACKED_ON_CONSUMER,
    MAX_UNACKED_ON_SUBSCRIPTION,
)
from geminga.broker.policies.core.rate_rows import (
    DISPATCH_RATE,
    PUBLISH_RATE,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    SUBSCRIPTION_POLICIES,
)
from geminga.broker.policies.core.rates import NO_RATES, TopicRates
from geminga.broker.policies.core.readers import (
    AGE_QUOTA,
    SIZE_QUOTA,
    PersistencePolicy,
    Quota,
    QuotaAction,
    RetentionPolicy,
)
from geminga.broker.policies.core.row import PolicyRow, Settings
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.policies.core.storage_rows import PERSISTENCE
from geminga.broker.subscription.limits import NO_LIMITS, TopicLimits, UnackedLimits
from geminga.model.settings import settings_of

if TYPE_CHECKING:
    from geminga.wire.bookkeeper.isolation import IsolationGroups

__all__ = ["AGE_QUOTA", "MINUTE_MS", "SIZE_QUOTA", "Levels", "Quota", "QuotaAction", "TopicRules", "broker_levels"]

T = TypeVar("T")

MINUTE_MS: Final = 60_000


class TopicRules:
    """What holds for one topic: ``rules[ROW]``, and what parts of the broker make of it."""

    __slots__ = ("_values", "bookies")

    def __init__(
        self, values: Mapping[PolicyRow[Any], object] | None = None, bookies: IsolationGroups | None = None
    ) -> None:
        """``values``: of rows where something else holds than nothing being set."""
        self._values = dict(values or {})
        #: The groups of bookies that new ledgers keep to; None: what is configured.
        self.bookies = bookies

    def __getitem__(self, row: PolicyRow[T]) -> T:
        found: T = self._values.get(row, row.otherwise)  # type: ignore[assignment]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicRules) and self._values == other._values and self.bookies == other.bookies

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        told = [f"{row.name}={value!r}" for row, value in self._values.items()]
        return f"TopicRules({', '.join(told if self.bookies is None else [*told, f'bookies={self.bookies}'])})"

    def with_bookies(self, bookies: IsolationGroups) -> TopicRules:
        """The same, with ledgers elsewhere."""
        return TopicRules(self._values, bookies)

    @property
    def retention(self) -> RetentionPolicy:
        """Minutes and MiB; -1 without limit."""
        return self[RETENTION]

    @property
    def persistence(self) -> PersistencePolicy | None:
        """Quorums of new ledgers, and how often cursors are written; None: what is configured."""
        return self[PERSISTENCE]

    @property
    def ttl_ms(self) -> int:
        """Messages older than this are acknowledged for every subscription; 0: never."""
        return self[MESSAGE_TTL] * 1000

    @property
    def size_quota(self) -> Quota | None:
        """The backlog quota by size, bytes."""
        return self[BACKLOG_QUOTAS].size

    @property
    def age_quota(self) -> Quota | None:
        """The backlog quota by age, milliseconds."""
        return self[BACKLOG_QUOTAS].age

    @property
    def subscription_expiry_ms(self) -> int:
        """Subscriptions without consumers for this long are deleted; 0: never."""
        return self[SUBSCRIPTION_EXPIRY] * MINUTE_MS

    @property
    def deduplication(self) -> bool:
        """Whether a message that is sent again is stored once."""
        return self[DEDUPLICATION]

    @property
    def dedup_snapshot_ms(self) -> int:
        """Between two snapshots of the sequence ids, if anything was stored; 0: by the number of entries only."""
        return self[DEDUPLICATION_SNAPSHOTS] * 1000

    @property
    def delays(self) -> bool:
        """Whether messages wait for their delivery time."""
        return self[DELAYED_DELIVERY].is_active

    @property
    def delay_tick_ms(self) -> int:
        """How exactly they are delivered."""
        return self[DELAYED_DELIVERY].tick_ms

    @property
    def unacked(self) -> UnackedLimits:
        """How much consumers may leave unacknowledged."""
        return UnackedLimits(self[MAX_UNACKED_ON_CONSUMER], self[MAX_UNACKED_ON_SUBSCRIPTION])

    @property
    def subscription_types(self) -> tuple[str, ...]:
        """Types that new consumers may ask for."""
        return self[SUBSCRIPTION_TYPES_ENABLED]

    @property
    def rates(self) -> TopicRates:
        """Who publishes, is sent messages or subscribes faster is slowed down."""
        found = TopicRates(
            self[PUBLISH_RATE],
            self[DISPATCH_RATE],
            self[SUBSCRIPTION_DISPATCH_RATE],
            self[SUBSCRIBE_RATE],
            self[SUBSCRIPTION_POLICIES],
        )
        # One object for all topics without rates: most have none.
        return found if any(found) else NO_RATES

    @property
    def limits(self) -> TopicLimits:
        """How many producers, consumers and subscriptions a topic takes."""
        found = TopicLimits(
            self[MAX_PRODUCERS],
            self[MAX_CONSUMERS],
            self[MAX_CONSUMERS_PER_SUBSCRIPTION],
            self[MAX_SUBSCRIPTIONS],
        )
        # One object for all topics without limits: most have none.
        return found if any(found) else NO_LIMITS


def broker_levels(config: object) -> Settings:
    """A configuration's values by Pulsar's keys: what rows take the broker's level from."""
    return {key: getattr(config, name) for key, (_, name) in settings_of(type(config)).items()}


class Levels(NamedTuple):
    """What is set for one topic, level by level."""

    settings: Settings
    #: This cluster's name.
    cluster: str = ""
    namespace: Mapping[str, Json] = {}
    #: What the topic has of its own in this cluster, and for all clusters.
    topic: Mapping[str, Json] = {}
    topic_global: Mapping[str, Json] = {}

    def of(self, row: PolicyRow[Any]) -> list[Json]:
        """A policy's values, the most particular level first; None: not set there."""
        found: list[Json] = []
        if row.topic is not None:
            found += [row.topic.stored(self.topic), row.topic.stored(self.topic_global)]
        if row.namespace is not None:
            found.append(row.namespace.stored(self.namespace, self.cluster))
        return [*found, row.broker_level(self.settings)]

    def merged(self, row: PolicyRow[Any]) -> Json:
        """What holds, as a level would store it."""
        return row.merged(self.of(row))

    def value(self, row: PolicyRow[T]) -> T:
        """What holds."""
        return row.value_of(self.of(row))

    def rules(self, bookies: IsolationGroups | None = None) -> TopicRules:
        """What holds, of every policy, and where its ledgers are."""
        values: dict[PolicyRow[Any], object] = {}
        for row in ROWS:
            value = row.value_of(self.of(row))
            if value != row.otherwise:
                values[row] = value
        return TopicRules(values, bookies)
