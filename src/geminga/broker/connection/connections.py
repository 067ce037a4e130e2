"""All connections of a broker: how many there may be, and what the log says of those that are sent away."""

from __future__ import annotations

from typing import Protocol

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.model.errors import GemingaError
from geminga.runtime import Clock, SparseWarnings, get_logger
from geminga.wire.pulsar import foreign

_log = get_logger(__name__)


class Peer(Protocol):
    """Who is at the other end, as the log calls it."""

    peer: str
    client_version: str

    @property
    def is_connected(self) -> bool:
        """It has shaken hands."""


class OpenConnection(Peer, Protocol):
    """One that is open."""

    def send_error(self, request_id: int, error: GemingaError) -> None:
        """Answer ERROR."""

    def close(self, reason: str = "") -> None:
        """Close; what is still to be written is."""

    def abort(self, reason: str = "") -> None:
        """Cut it off at once."""


class Connections:
    """See the module."""

    __slots__ = ("_by_ip", "_config", "_strangers", "open", "opened_count", "refused_count")

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._strangers = SparseWarnings(_log, clock.monotonic)
        self._by_ip: dict[str, int] = {}
        #: Those that are open, in the order in which they came.
        self.open: dict[OpenConnection, None] = {}
        #: Accepted since the start; read at scrape time.
        self.opened_count = 0
        #: Of these, those that could not stay.
        self.refused_count = 0

    def opened(self, connection: OpenConnection) -> str:
        """Count a connection; why it can not stay, or an empty text."""
        self.open[connection] = None
        self.opened_count += 1
        address = connection.peer.rpartition(":")[0]
        count = self._by_ip.get(address, 0) + 1
        self._by_ip[address] = count
        config = self._config
        refusal = ""
        if config.connections_max and len(self.open) > config.connections_max:
            refusal = f"reached brokerMaxConnections={config.connections_max}"
        elif config.connections_per_ip_max and count > config.connections_per_ip_max:
            refusal = f"reached brokerMaxConnectionsPerIp={config.connections_per_ip_max}"
        self.refused_count += bool(refusal)
        return refusal

    def closed(self, connection: OpenConnection) -> None:
        """A connection is gone."""
        self.open.pop(connection, None)
        address = connection.peer.rpartition(":")[0]
        left = self._by_ip.get(address, 0) - 1
        if left > 0:
            self._by_ip[address] = left
        else:
            self._by_ip.pop(address, None)

    def warn_of_closing(self, connection: Peer, reason: str) -> None:
        """One line for a client that is sent away; one a minute for all who never shook hands."""
        if connection.is_connected:
            _log.warning("closing connection %s (%s): %s", connection.peer, connection.client_version, reason)
        else:
            self._strangers.warn(f"closing connection {connection.peer} (no client yet): {reason}")

    def warn_of_wrong_port(self, connection: Peer, spoken: foreign.Protocol) -> None:
        """Somebody speaks another protocol than the port does; of each one line a minute."""
        advice = "there is none on this port" if spoken is foreign.Protocol.TLS else "it is on webServicePort"
        text = (
            f"closing connection {connection.peer}: it speaks {spoken.value} on a port of the binary protocol; {advice}"
        )
        self._strangers.warn(text, spoken.name)

    def warn_of_hidden(self, connection: Peer, error: GemingaError) -> None:
        """What a client was not told of an error; of each kind one a minute, for clients try again and again."""
        text = f"{connection.peer} ({connection.client_version}) was told {error.told!r}: {error}"
        self._strangers.warn(text, type(error).__name__)
