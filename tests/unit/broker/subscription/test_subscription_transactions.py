"""What a subscription acknowledges in transactions: made with the first use, and nobody consumes while it is unread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from geminga.broker.subscription.transactions import SubscriptionTransactions
from geminga.model.errors import LedgerFencedError, NotAllowedError, StorageError, UnavailableError
from geminga.model.txn_id import TxnId
from support.worlds.subscriptions import RecordedTopic, with_topic


class Logs:
    """Logs of acknowledgments: there is none, or that can not be read."""

    def __init__(self) -> None:
        self.error: StorageError | None = None

    async def exists(self, topic: object, subscription: str) -> bool:
        if self.error is not None:
            raise self.error
        return False


def told(scenario: Callable[[Logs, SubscriptionTransactions, SubscriptionTransactions], Coroutine]) -> None:
    """``scenario`` gets one that may acknowledge in transactions, and one that may not."""

    async def on_topic(topic: RecordedTopic) -> None:
        logs = topic.services.pending_ack_logs = Logs()
        subscription = await topic.create_subscription("sub")
        both = [SubscriptionTransactions(subscription, is_allowed=is_allowed) for is_allowed in (True, False)]
        await scenario(logs, *both)

    with_topic(on_topic)


def test_acknowledgments_are_made_with_the_first_use_where_they_are_allowed() -> None:
    async def scenario(logs: Logs, transactions: SubscriptionTransactions, without: SubscriptionTransactions) -> None:
        assert (transactions.used, transactions.held) == (None, None)
        acks = transactions.acks
        assert acks is not None
        assert transactions.used is acks is transactions.acks
        assert transactions.held is None
        assert (without.acks, without.used) == (None, None)
        with pytest.raises(NotAllowedError, match="takes no transactions"):
            await without.end(TxnId(0, 1), commit=True, low_watermark=-1)

    told(scenario)


def test_what_can_not_be_read_is_read_before_anybody_consumes() -> None:
    async def scenario(logs: Logs, transactions: SubscriptionTransactions, without: SubscriptionTransactions) -> None:
        logs.error = StorageError("a ledger can not be read")
        await transactions.require()  # nobody said that there is anything to read
        await transactions.load()
        await without.load()
        with pytest.raises(UnavailableError, match="subscription sub can not be read now"):
            await transactions.require()
        await without.require()
        logs.error = None
        await transactions.require()
        logs.error = StorageError("again")
        await transactions.require()

    told(scenario)


def test_a_topic_that_another_broker_has_is_not_loaded_without_them() -> None:
    async def scenario(logs: Logs, transactions: SubscriptionTransactions, without: SubscriptionTransactions) -> None:
        logs.error = LedgerFencedError("opened by another")
        with pytest.raises(LedgerFencedError):
            await transactions.load()
        await transactions.require()

    told(scenario)
