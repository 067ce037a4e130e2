"""What the connections of a proxy share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from geminga.broker.access.ports import Access
from geminga.proxy.brokers import BrokerDirectory, Brokers
from geminga.proxy.config import ProxyConfig
from geminga.proxy.core.guests import Counters
from geminga.proxy.core.room import UntakenRoom
from geminga.runtime import SparseWarnings

if TYPE_CHECKING:
    from geminga.proxy.connection import ProxyConnection


@dataclass(slots=True, kw_only=True)
class ProxyServices:
    """See the module."""

    config: ProxyConfig
    access: Access
    brokers: Brokers
    directory: BrokerDirectory
    counters: Counters
    monotonic: Callable[[], float]
    #: For what ends do not take.
    room: UntakenRoom
    #: Of what strangers do.
    warnings: SparseWarnings
    #: Told to clients.
    version: str
    #: Seconds that a client has for its handshake.
    handshake_s: float
    #: How a role is shown in the log.
    shown_role: Callable[[str], str]
    #: Those that are open, oldest first.
    open: dict[ProxyConnection, None] = field(default_factory=dict)
    #: No request and no broker is taken any more.
    is_stopping: bool = False
