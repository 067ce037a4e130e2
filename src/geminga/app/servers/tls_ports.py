"""TLS of a broker's ports: a context for each of the two protocols, which follow their files."""

from __future__ import annotations

from collections.abc import Sequence

from geminga.app.configuration.tls_config import TlsConfig
from geminga.runtime.ports import ServerTls
from geminga.runtime.tls.following import FollowedContext


class TlsPorts:
    """Contexts are made at once, so that what is wrong with a file is known before a port is bound."""

    def __init__(self, config: TlsConfig, handshake_s: float, bind_addresses: Sequence[str]) -> None:
        """``handshake_s``: seconds that a client has for its handshake. Raises ConfigurationError."""
        self._config = config
        self._handshake_s = handshake_s
        self._contexts: list[FollowedContext] = []
        #: Of the binary protocol, and of HTTP; None: no port of it speaks TLS.
        self.binary: ServerTls | None = None
        self.web: ServerTls | None = None
        if config.broker_port is not None or any("pulsar+ssl:" in text for text in bind_addresses):
            self.binary = self._made(config.context(config.binary_rules, "the binary protocol"))
        if config.web_port is not None or any("https:" in text for text in bind_addresses):
            self.web = self._made(config.context(config.web_rules, "HTTP"))

    def follow(self) -> None:
        """Look at the files from time to time, on the running loop."""
        for context in self._contexts:
            context.follow(self._config.refresh_s)

    def look(self) -> None:
        """Read the files again now: an operator says that they are new."""
        for context in self._contexts:
            context.look(again=True)

    def close(self) -> None:
        """Look no more."""
        for context in self._contexts:
            context.close()

    def _made(self, context: FollowedContext) -> ServerTls:
        self._contexts.append(context)
        return ServerTls(context.context, self._handshake_s)
