"""What this package needs of the broker around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.runtime import Part, Runtime

if TYPE_CHECKING:
    from geminga.broker.ownership.ports import Ownership
    from geminga.broker.policies.config import PolicyConfig
    from geminga.broker.policies.rules import TopicRules
    from geminga.broker.resources.policies import Policies
    from geminga.broker.schema.registry import SchemaRegistry
    from geminga.broker.system_topics.table import TablesElsewhere
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.services import TopicServices
    from geminga.model.topic_name import TopicName


class NamespacePolicies(Protocol):
    """Policies of namespaces, remembered."""

    async def policies(self, namespace: str) -> Policies | None:
        """Policies of ``tenant/namespace``; None if there is no such namespace. Raises MetadataError."""
        ...

    async def policies_now(self, namespace: str) -> Policies | None:
        """As they are stored now. Raises MetadataError."""
        ...


class LoadedTopics(Part, Protocol):
    """The topics of a broker, whose failure it is what is no single topic's."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The loaded ones, by full name."""
        ...


class CurrentRules(Protocol):
    """Rules by what is stored now."""

    async def rules_now(self, name: TopicName) -> TopicRules | None:
        """None: there is no such namespace, or it lives in other clusters alone. Raises StorageError."""
        ...


class UpkeepBroker(LoadedTopics, Protocol):
    """What upkeep needs."""

    @property
    def config(self) -> PolicyConfig:
        """How often is looked."""
        ...

    @property
    def policies(self) -> CurrentRules:
        """What holds."""
        ...

    @property
    def topic_services(self) -> TopicServices:
        """Which parts topics may have."""
        ...


class Schemas(Protocol):
    """Schemas of topics."""

    @property
    def registry(self) -> SchemaRegistry:
        """Their versions."""
        ...


class EventsTopics(Protocol):
    """Topics, as the store of topic policies needs them."""

    def loaded_of(self, whole: TopicName) -> Sequence[Topic]:
        """That topic and its partitions, as many as are loaded."""
        ...

    async def get(self, name: TopicName, *, create: bool) -> Topic:
        """The topic of the events, loaded. Raises GemingaError."""
        ...

    async def exists(self, name: TopicName) -> bool:
        """Whether there are events."""
        ...


class EventsBroker(LoadedTopics, Protocol):
    """What the store of topic policies needs of the broker that keeps the events."""

    @property
    def runtime(self) -> Runtime:
        """The clock."""
        ...

    @property
    def config(self) -> PolicyConfig:
        """Whether topics have policies."""
        ...

    @property
    def namespaces(self) -> NamespacePolicies:
        """Whose events are read."""
        ...

    @property
    def schemas(self) -> Schemas:
        """Schemas of the events."""
        ...

    @property
    def ownership(self) -> Ownership:
        """Who keeps the events of a namespace."""
        ...

    @property
    def tables_elsewhere(self) -> TablesElsewhere | None:
        """Events that another broker serves; None: they are refused."""
        ...

    @property
    def registry(self) -> EventsTopics:
        """The topics of the events, and those that follow them."""
        ...
