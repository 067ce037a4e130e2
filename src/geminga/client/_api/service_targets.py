"""Where a client finds its cluster, and what tells it to go on with another one: a service URL provider.

The providers are in :mod:`geminga.client.failover`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import InvalidConfiguration
from geminga.client._api.options import ClientOptions, check_kinds
from geminga.client.rules.option_kinds import NOTHING, TEXT, Either, Kind, With
from geminga.runtime import Runtime

_TARGET_KINDS: Final[Mapping[str, Kind]] = {
    "service_url": TEXT,
    "authentication": Either(NOTHING, With("an Authentication", "method_name", "data")),
    "tls_trust_certs_file_path": TEXT,
    "tls_certificate_file_path": TEXT,
    "tls_private_key_file_path": TEXT,
}


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """A cluster: its service URL, and what differs there from the client's own options; empty: nothing does.

    Raises InvalidConfiguration for what is none of these; a URL is looked at by the provider that takes it.
    """

    service_url: str
    authentication: Authentication | None = None
    tls_trust_certs_file_path: str = ""
    tls_certificate_file_path: str = ""
    tls_private_key_file_path: str = ""

    def __post_init__(self) -> None:
        check_kinds(self, _TARGET_KINDS)

    def options(self, own: ClientOptions) -> ClientOptions:
        """The client's options for this cluster."""
        trust = self.tls_trust_certs_file_path
        found = own if self.authentication is None else replace(own, authentication=self.authentication)
        if trust:
            # A password is of the file that it came with.
            found = replace(found, tls_trust_certs_file_path=trust, tls_trust_certs_password="")
        if self.tls_certificate_file_path:
            found = replace(
                found,
                tls_certificate_file_path=self.tls_certificate_file_path,
                tls_private_key_file_path=self.tls_private_key_file_path,
                tls_certificate_password="",
            )
        return found


class FailoverClient(Protocol):
    """The client, as its provider uses it."""

    @property
    def runtime(self) -> Runtime:
        """Clock, threads."""
        ...

    async def reaches(self, target: ServiceTarget, timeout_s: float) -> bool:
        """Whether a broker of that cluster takes a connection, credentials included, in that time; raises nothing."""
        ...

    def go_on_with(self, target: ServiceTarget) -> None:
        """From now on everything is there: connections end, producers and consumers come back over there.

        Raises InvalidUrl, and then nothing is changed.
        """
        ...


class ServiceUrlProvider(Protocol):
    """Says which cluster a client uses. One provider is for one client at a time."""

    @property
    def first(self) -> ServiceTarget:
        """Where the client begins."""
        ...

    async def watch(self, client: FailoverClient) -> None:
        """Run from the client's first connection until it is closed; tells it where to go on.

        It is to raise nothing: what it can not reach or read is no reason to end.
        """
        ...


def target_of(where: str | ServiceTarget, what: str) -> ServiceTarget:
    """A service URL with nothing else, as a target. Raises InvalidConfiguration that names ``what``."""
    if isinstance(where, str):
        return ServiceTarget(where)
    if isinstance(where, ServiceTarget):
        return where
    raise InvalidConfiguration(f"{what}: expected a service URL or a ServiceTarget, not {where!r}")
