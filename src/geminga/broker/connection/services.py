"""What a connection uses of the broker around it; made once, where the broker is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from geminga.broker.access.ports import Access
from geminga.broker.config import BrokerConfig
from geminga.broker.connection.connections import Connections
from geminga.broker.connection.frame_room import FrameRoom
from geminga.broker.connection.output_budget import OutputBudget
from geminga.broker.connection.publish_buffer import PublishBuffer
from geminga.broker.failures import Failures
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.connection.connection import Connection


class Commands(Protocol):
    """What is done with commands; the first four are those that have hand-written codecs, or a payload."""

    @property
    def flow(self) -> Callable[[Connection, int, int], None]:
        """FLOW: consumer id and permits."""
        ...

    @property
    def ack(self) -> Callable[[Connection, bytes], None]:
        """ACK as it came."""
        ...

    @property
    def redeliver(self) -> Callable[[Connection, bytes], None]:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES as it came, with very many message ids."""
        ...

    @property
    def send(self) -> Callable[[Connection, pb.CommandSend, bytes], None]:
        """A SEND that is not plain, and its payload."""
        ...

    def run(self, connection: Connection, command: pb.BaseCommand) -> bool:
        """Any other command; False for one that no client sends."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionServices:
    """One for all connections of a broker."""

    monotonic: Callable[[], float]
    config: BrokerConfig
    #: Who is let in.
    access: Access
    commands: Commands
    connections: Connections
    failures: Failures

    # ---- bounds over all connections
    frame_room: FrameRoom
    output_budget: OutputBudget
    publish_buffer: PublishBuffer
