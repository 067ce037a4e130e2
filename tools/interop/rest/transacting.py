"""What a client does in transactions between the calls of a story."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from geminga.client import ConsumerType, InitialPosition, MessageId
from geminga.client.blocking import Client, Consumer, Transaction, connect

#: Milliseconds within which a message comes that is there.
RECEIVE_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction, whose numbers later paths call ``{NAME}``: ``5/0``; in answers its id is ``(NAME)``."""

    name: str
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Send:
    """Messages in a transaction."""

    name: str
    topic: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Receive a message of a subscription, which is made at the beginning of the topic, and acknowledge it in a
    transaction; without one (``name`` empty) for good."""

    name: str
    topic: str
    subscription: str
    is_cumulative: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort."""

    name: str
    is_commit: bool = True


#: Steps of a story.
Step = Begin | Send | Acknowledge | End


@dataclass(slots=True)
class Transacting:
    """Transactions, and consumers that acknowledge in them, of one story."""

    service_url: str
    namespace: str
    _client: Client | None = None
    _consumers: dict[tuple[str, str], Consumer[Any]] = field(default_factory=dict)
    _transactions: dict[str, Transaction] = field(default_factory=dict)
    #: Of the last message that was acknowledged.
    last: MessageId | None = None

    def do(self, step: Step) -> None:
        """One step."""
        if self._client is None:
            self._client = connect(self.service_url)
        if isinstance(step, Begin):
            self._transactions[step.name] = self._client.transaction(step.timeout_s)
        elif isinstance(step, Send):
            with self._client.create_producer(self._named(step.topic)) as producer:
                for index in range(step.count):
                    producer.send(b"%d" % index, txn=self._transactions[step.name])
        elif isinstance(step, Acknowledge):
            self._acknowledge(self._client, step)
        elif step.is_commit:
            self._transactions[step.name].commit()
        else:
            self._transactions[step.name].abort()

    def _named(self, topic: str) -> str:
        return topic.replace("{ns}", self.namespace)

    def _acknowledge(self, client: Client, step: Acknowledge) -> None:
        place = (self._named(step.topic), step.subscription)
        consumer = self._consumers.get(place)
        if consumer is None:
            kind = ConsumerType.Exclusive if step.is_cumulative else ConsumerType.Shared
            consumer = client.subscribe(
                *place, consumer_type=kind, initial_position=InitialPosition.Earliest, batch_index_ack_enabled=True
            )
            self._consumers[place] = consumer
        message = consumer.receive(RECEIVE_MS)
        self.last = message.message_id()
        acknowledge = consumer.acknowledge_cumulative if step.is_cumulative else consumer.acknowledge
        acknowledge(message, txn=self._transactions[step.name] if step.name else None)

    def filled(self, path: str) -> str:
        """``path`` with the numbers of transactions and of the last message."""
        for name, transaction in self._transactions.items():
            path = path.replace(f"{{{name}}}", "{}/{}".format(*transaction.id))
        if self.last is not None:
            path = path.replace("{acked}", f"{self.last.ledger_id()}/{self.last.entry_id()}")
        return path

    def named(self, body: bytes) -> bytes:
        """An answer with the transactions' names instead of their ids."""
        for name, transaction in self._transactions.items():
            body = body.replace(str(transaction.id).encode(), f"({name})".encode())
        return body

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()
