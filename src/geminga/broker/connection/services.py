"""What a connection uses of the broker around it, and what is done with its commands; put together with the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.access.ports import Access
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.connection.connections import Connections
    from geminga.broker.connection.output_budget import OutputBudget
    from geminga.broker.connection.publish_buffer import PublishBuffer
    from geminga.broker.connection.request_room import RequestRoom
    from geminga.broker.failures import Failures
    from geminga.broker.topic.producer import Producer
    from geminga.broker.topic.publish import PublishBatch
    from geminga.runtime.frame_room import FrameRoom

#: The connection.
C = TypeVar("C", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionServices:
    """One for all connections of a broker."""

    monotonic: Callable[[], float]
    config: BrokerConfig
    #: Who is let in.
    access: Access
    connections: Connections
    failures: Failures

    # ---- bounds over all connections
    frame_room: FrameRoom
    output_budget: OutputBudget
    publish_buffer: PublishBuffer
    requests: RequestRoom


class Commands(Protocol[C]):
    """What is done with commands; the first five are those that have hand-written codecs, or a payload."""

    @property
    def flow(self) -> Callable[[C, int, int], None]:
        """FLOW: consumer id and permits."""
        ...

    @property
    def ack(self) -> Callable[[C, bytes], None]:
        """ACK as it came."""
        ...

    @property
    def redeliver(self) -> Callable[[C, bytes], None]:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES as it came, with very many message ids."""
        ...

    @property
    def send(self) -> Callable[[C, pb.CommandSend, bytes], None]:
        """A SEND that is not plain, and its payload."""
        ...

    @property
    def publish_in_transaction(self) -> Callable[[C, Producer, PublishBatch], None]:
        """SENDs of one producer in one transaction."""
        ...

    def run(self, connection: C, command: pb.BaseCommand) -> bool:
        """Any other command; False for one that no client sends."""
        ...
