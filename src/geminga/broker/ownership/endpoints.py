"""What clients are told about where the broker is: one endpoint per advertised listener.

The composition root knows the ports that were bound and the addresses an operator advertises, and hands both
in as :class:`Endpoint` values; the first one is for clients that name no listener.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from geminga.model.errors import UnavailableError

DEFAULT_LISTENER: Final = "internal"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener's URLs; empty text for what there is none of."""

    name: str
    broker_url: str
    broker_url_tls: str = ""
    web_url: str = ""
    web_url_tls: str = ""
    #: Clients come back where they asked, whatever the URLs say: this broker alone is behind that address.
    is_through_service_url: bool = False


class Endpoints:
    """The advertised listeners of this broker."""

    __slots__ = ("_by_name", "_default")

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        """At least one endpoint; names are unique."""
        self._default = endpoints[0]
        self._by_name = {endpoint.name: endpoint for endpoint in endpoints}

    @property
    def default(self) -> Endpoint:
        """For clients that name no listener."""
        return self._default

    @property
    def all(self) -> list[Endpoint]:
        """The default one first."""
        return [self._default, *(one for one in self._by_name.values() if one is not self._default)]

    def find(self, listener: str) -> Endpoint:
        """The endpoint of ``listener`` (empty: the default); raises UnavailableError, as Pulsar does."""
        if not listener:
            return self._default
        found = self._by_name.get(listener)
        if found is None:
            raise UnavailableError(f"the broker do not have {listener} listener")
        return found
