"""Topics that are read compacted (``pulsar.reader.readCompacted``): brokers hold messages of ledgers that are gone.

So such a topic begins before its first ledger, and what went with a ledger is lost only where it was not compacted.
"""

from __future__ import annotations

from geminga.client import Client
from geminga.spark.source.scout import Scout
from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition
from geminga.spark.source_rules.options import ReaderConfiguration


async def is_held_compacted(client: Client, topic: str, first: ReadPosition, config: ReaderConfiguration) -> bool:
    """Whether the topic, whose ledgers begin at ``first``, has compacted messages before.

    Brokers delete no ledger of a topic that is compacted before compaction has read it: there is nothing lost then.
    Where it has none nobody can tell, as every key before may be deleted. Raises ReadTimeoutError, and what the client
    raises.
    """
    if not config.is_read_compacted:
        return False
    scout = Scout(client, topic, BEGINNING, config)
    try:
        return await scout.next(first) is not None
    finally:
        await scout.close()
