"""Which topics a namespace has: those that are stored, and those that only the broker knows that has them loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.topic_name import (
    PARTITION_SUFFIX,
    SYSTEM_NAMESPACE,
    TopicName,
    decode_name,
    is_hidden,
    is_of_transactions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from geminga.broker.resources import Resources
    from geminga.managed_ledger import ManagedLedgerFactory
    from geminga.runtime import Turns


async def persistent_names(
    ledgers: ManagedLedgerFactory, namespace: str, turns: Turns, *, has_system: bool
) -> list[str]:
    """Full names of the persistent topics of ``tenant/namespace``; ``has_system``: also the broker's own.

    Never the logs of transactions. Raises StorageError.
    """
    found: list[str] = []
    is_own = namespace == SYSTEM_NAMESPACE
    for encoded in await ledgers.encoded_names(f"{namespace}/persistent"):
        if turns.is_over():
            await turns.next()
        local = decode_name(encoded)
        if not (is_of_transactions(namespace, local) if has_system else is_own or is_hidden(local)):
            found.append(f"persistent://{namespace}/{local}")
    return found


async def non_persistent_names(loaded: Iterable[str], resources: Resources, namespace: str, turns: Turns) -> set[str]:
    """Full names of the non-persistent topics: ``loaded`` ones, and partitions of which the count is stored."""
    found = {name for name in loaded if name.startswith(f"non-persistent://{namespace}/")}
    for text in await resources.list_partitioned_topics(namespace, "non-persistent"):
        for index in range(await resources.partitioned_topic_metadata(TopicName.parse(text)) or 0):
            if turns.is_over():
                await turns.next()
            found.add(f"{text}{PARTITION_SUFFIX}{index}")
    return found
