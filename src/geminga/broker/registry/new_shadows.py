"""Making topics that show the messages of another one (``PULSAR.SHADOW_SOURCE``, docs/shadow-topics.md).

What a shadow shows is said when it is made and never after: its node has the property before it is first opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from geminga.broker.registry.new_topics import make_with
from geminga.model.errors import ConflictError, InvalidTopicNameError, PreconditionFailedError
from geminga.model.topic_name import SHADOW_SOURCE, TopicName

if TYPE_CHECKING:
    from geminga.broker.registry.topic_registry import TopicRegistry
    from geminga.broker.resources import Resources
    from geminga.broker.topic.base import Topic
    from geminga.managed_ledger import ManagedLedgerFactory


def is_shadow(properties: Mapping[str, str]) -> bool:
    """Whether a topic with these properties shows another one."""
    return bool(properties.get(SHADOW_SOURCE))


async def check_source(
    resources: Resources,
    ledgers: ManagedLedgerFactory,
    name: TopicName,
    properties: Mapping[str, str],
    partitions: int = 0,
) -> None:
    """Raise PreconditionFailedError unless the topic that ``name`` is to show can be shown, and has as many partitions
    (0: none). StorageError."""
    text = properties[SHADOW_SOURCE]
    try:
        source = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise PreconditionFailedError(f"{SHADOW_SOURCE}: {error}") from error
    if not name.is_persistent or not source.is_persistent:
        raise PreconditionFailedError(f"{name} can not show {source}: both have to be persistent topics")
    if source == name or source.is_system:
        raise PreconditionFailedError(f"{source} can not be shown by {name}")
    found = None if source.is_partition else await resources.partitioned_topics.find(source)
    count = 0 if found is None else found.partitions
    info = None if found is not None else await ledgers.info(source.managed_ledger_name)
    if found is None and info is None:
        raise PreconditionFailedError(f"Source topic {source} does not exist")
    if count != partitions:
        raise PreconditionFailedError(
            f"Source topic {source} has {_counted(count)}, {name} is to have {_counted(partitions)}: they must be equal"
        )
    theirs: Mapping[str, str] = found.properties if found is not None else info.record.properties if info else {}
    if is_shadow(theirs):
        raise PreconditionFailedError(f"Source topic {source} is a shadow topic itself, of {theirs[SHADOW_SOURCE]}")


async def create(
    registry: TopicRegistry,
    resources: Resources,
    ledgers: ManagedLedgerFactory,
    name: TopicName,
    properties: Mapping[str, str],
) -> Topic:
    """A shadow that is not partitioned. Raises as :meth:`TopicRegistry.create`, and as :func:`check_source`."""
    await registry.require_namespace(name)
    if await registry.exists(name) or await resources.partitioned_topics.find(name) is not None:
        raise ConflictError("This topic already exists")
    await check_source(resources, ledgers, name, properties)
    with await registry.room_for(name):
        await make_with(resources, ledgers, name, properties)
    return await registry.load(name)


def _counted(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "no partitions"
