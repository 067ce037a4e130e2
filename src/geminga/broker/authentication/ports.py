"""What a provider is."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.ports import Labels


class RefusedError(ValueError):
    """Credentials are not good; what is told holds nothing of them."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        #: Pulsar's name of the failure, for metrics.
        self.code = code
        #: Told to who sent them.
        self.reason = reason


Proof: TypeAlias = Known | Coroutine[Any, Any, Known]


class Provider(Protocol):
    """Finds out who somebody is, by one method."""

    @property
    def name(self) -> str:
        """The last part of Pulsar's class name, for metrics."""
        ...

    @property
    def method(self) -> str:
        """Pulsar's name of the method."""
        ...

    def fits(self, credentials: Credentials) -> bool:
        """Whether credentials of an HTTP request that names no method could be this method's."""
        ...

    def metrics(self) -> Iterable[tuple[Labels, Mapping[str, float]]]:
        """Labels and samples of its own; of a name of one provider alone."""
        ...

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Proof:
        """Who brings them; raises RefusedError, at once or later.

        ``source``: the address they come from. ``in_http``: the data are a header Authorization.
        """
        ...
