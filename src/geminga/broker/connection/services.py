"""What a connection uses of the broker around it; made once, where the broker is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.broker.access.ports import Access
    from geminga.broker.configuration.broker_config import BrokerConfig
    from geminga.broker.connection.connections import Connections
    from geminga.broker.connection.output_budget import OutputBudget
    from geminga.broker.connection.publish_buffer import PublishBuffer
    from geminga.broker.connection.request_room import RequestRoom
    from geminga.broker.failures import Failures
    from geminga.runtime.frame_room import FrameRoom


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
