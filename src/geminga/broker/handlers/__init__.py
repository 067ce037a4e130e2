"""What is done with each command, and what it needs: one module per family, one table of rows for the connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from geminga.broker.handlers import consumer, lookup, producer, schema, session, topic_lists, transaction
from geminga.broker.handlers import subscription as subscription
from geminga.broker.handlers.rows import CommandRow, CommandTable, HotCommands
from geminga.broker.handlers.services import CommandServices

__all__ = ["ROWS", "command_table"]

#: Every command that a client may send.
ROWS: Final = (
    *session.ROWS,
    *lookup.ROWS,
    *producer.ROWS,
    *consumer.ROWS,
    *schema.ROWS,
    *topic_lists.ROWS,
    *transaction.ROWS,
)


def command_table(services: CommandServices) -> CommandTable:
    """The rows, asked of who decides at this broker; raises InvariantError where they contradict each other."""
    hot = HotCommands(
        flow=subscription.handle_flow,
        ack=subscription.handle_ack_bytes,
        redeliver=subscription.handle_redeliver_bytes,
        send=producer.handle_send,
        publish_in_transaction=producer.publish_in_transaction,
    )
    rows: Iterable[CommandRow] = ROWS
    if services.access.audit is not None:
        # Not loaded where nothing is kept.
        from geminga.broker.handlers.kept_reads import noted

        rows = noted(rows, services.access.audit, all_readers=services.access.audits_readers)
    return CommandTable(rows, hot, services)
