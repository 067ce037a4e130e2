"""Who hears from a connection: what producers and consumers must have to be registered on one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from geminga.client._api.errors import PulsarException
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import Frame


class ServiceUrl(NamedTuple):
    """Of another cluster, without and with TLS; empty: there is none."""

    plain: str
    tls: str


class ProducerHandler(Protocol):
    """What a connection tells a producer."""

    def on_receipt(self, sequence_id: int, highest_sequence_id: int, ledger_id: int, entry_id: int) -> None:
        """A batch, message or chunk was stored."""
        ...

    def on_send_error(self, sequence_id: int, error: PulsarException) -> None:
        """It was refused."""
        ...

    def on_closed_by_broker(self, assigned: str | ServiceUrl) -> None:
        """The broker wants the topic looked up again; ``assigned`` names the next broker, empty: not known. Or the
        topic is in another cluster from now on, and is looked up there."""
        ...

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        ...

    def on_writable(self) -> None:
        """The transport takes data again after it was full."""
        ...


class ConsumerHandler(Protocol):
    """What a connection tells a consumer."""

    def on_messages(self, frames: list[Frame]) -> None:
        """MESSAGE frames of one socket read, in order: (command, headers and payload)."""
        ...

    def on_closed_by_broker(self, assigned: str | ServiceUrl) -> None:
        """The broker wants the topic looked up again; ``assigned`` names the next broker, empty: not known. Or the
        topic is in another cluster from now on, and is looked up there."""
        ...

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone."""
        ...

    def on_active_change(self, is_active: bool) -> None:
        """On a Failover subscription: this consumer became the active one, or no longer is."""
        ...

    def on_end_of_topic(self) -> None:
        """The topic was terminated and everything was delivered."""
        ...

    def on_ack_response(self, request_id: int, error: PulsarException | None) -> None:
        """An acknowledgment with a request id was carried out, or refused."""
        ...


class WatchHandler(Protocol):
    """What a connection tells a watch of a namespace's topics."""

    def on_topic_update(self, update: pb.CommandWatchTopicUpdate) -> None:
        """Topics came or went."""
        ...

    def on_connection_lost(self, error: PulsarException) -> None:
        """The connection is gone, and the watch with it."""
        ...
