"""What this package needs of the connection, the topic and the broker around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Protocol

from geminga.broker.core.delayed_delivery import TopicDelays
from geminga.broker.core.recent_candidates import RecentCandidates
from geminga.broker.core.unacked_budget import UnackedBudget
from geminga.broker.failures import Failures
from geminga.broker.subscription.config import SubscriptionConfig
from geminga.broker.subscription.limits import TopicLimits, UnackedLimits
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Buffer, Runtime
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.subscription.subscription import Subscription
    from geminga.managed_ledger import ManagedLedger


class ConsumerConnection(Protocol):
    """The client's connection, as its consumers use it."""

    @property
    def peer(self) -> str:
        """Address of the client, ``/127.0.0.1:1234``."""
        ...

    @property
    def client_version(self) -> str:
        """What the client calls itself."""
        ...

    @property
    def consumers(self) -> MutableMapping[int, Consumer]:
        """Consumers of this connection by their ids."""
        ...

    @property
    def is_writable(self) -> bool:
        """False while the client takes less than it is sent."""
        ...

    @property
    def is_held(self) -> bool:
        """Whether dispatchers must not write even what they have read: clients take too little."""
        ...

    @property
    def supports_broker_entry_metadata(self) -> bool:
        """Whether the client understands broker entry metadata in front of an entry."""
        ...

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when it is writable again."""
        ...

    def check_liveness(self) -> Awaitable[bool]:
        """Whether the client answers; its connection is closed if not."""
        ...

    def write(self, data: bytes) -> None:
        """Send one frame."""
        ...

    def write_many(self, parts: list[Buffer]) -> None:
        """Send frames with one call of the transport."""
        ...

    def send_command(self, command: pb.BaseCommand) -> None:
        """Send a command without payload."""
        ...

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Send ERROR for a request."""
        ...


class SubscriptionBroker(Protocol):
    """The broker around a topic."""

    @property
    def runtime(self) -> Runtime:
        """Clock, randomness, ..."""
        ...

    @property
    def config(self) -> SubscriptionConfig:
        """Settings."""
        ...

    @property
    def recent_candidates(self) -> RecentCandidates:
        """What is known of entries that were dispatched lately."""
        ...

    @property
    def unacked_budget(self) -> UnackedBudget | None:
        """How much all subscriptions together may leave unacknowledged; None: no limit."""
        ...

    @property
    def failures(self) -> Failures:
        """What broke."""
        ...

    def recount_unacked(self) -> None:
        """A dispatcher was thrown away as it was."""
        ...


class SubscriptionTopic(Protocol):
    """The topic of a subscription, persistent or not."""

    @property
    def name(self) -> TopicName:
        """Its name."""
        ...

    @property
    def broker(self) -> SubscriptionBroker:
        """Its broker."""
        ...

    @property
    def limits(self) -> TopicLimits:
        """What it may have."""
        ...

    def broke(self, what: str, error: BaseException) -> None:
        """It can not be trusted any more."""
        ...


class PersistentSubscriptionTopic(SubscriptionTopic, Protocol):
    """A topic with a managed ledger."""

    @property
    def ledger(self) -> ManagedLedger:
        """Its log."""
        ...

    @property
    def subscriptions(self) -> MutableMapping[str, Subscription]:
        """Its subscriptions by name."""
        ...

    @property
    def unacked_limits(self) -> UnackedLimits:
        """How much the consumers of a subscription may leave unacknowledged."""
        ...

    @property
    def delivery_tick_ms(self) -> int:
        """How exactly delayed messages are delivered, unless a subscription says otherwise."""
        ...

    def delays(self) -> TopicDelays | None:
        """What waits for its delivery time, for all subscriptions; None: messages are delivered at once."""
        ...
