"""Which kind of topic one is: without storage, a shadow of another one, or a log of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.services import TopicServices
    from geminga.managed_ledger import ManagedLedger
    from geminga.model.topic_name import TopicName


def made(services: TopicServices, name: TopicName, ledger: ManagedLedger | None) -> Topic:
    """A topic that is not loaded yet; its code is loaded with the first of its kind."""
    if ledger is None:
        from geminga.broker.topic.non_persistent import NonPersistentTopic

        return NonPersistentTopic(services, name)
    if ledger.is_shadow:
        from geminga.broker.shadow.topic import ShadowTopic

        return ShadowTopic(services, name, ledger)
    from geminga.broker.topic.persistent import PersistentTopic

    return PersistentTopic(services, name, ledger)
