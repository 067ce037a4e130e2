"""Class names of ``authenticationProviders`` as they stand in an operator's file. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from geminga.model.errors import ConfigurationError

_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
KEY: Final = "authenticationProviders"


class ProviderKind(Enum):
    """What there is for a class of Pulsar's."""

    TOKEN = "AuthenticationProviderToken"
    BASIC = "AuthenticationProviderBasic"
    TLS = "AuthenticationProviderTls"
    OPENID = "oidc.AuthenticationProviderOpenID"


KINDS: Final = {f"{_PACKAGE}{kind.value}": kind for kind in ProviderKind}
#: Others of Pulsar's, and why they are not here.
UNBUILT: Final = {
    f"{_PACKAGE}AuthenticationProviderSasl": "SASL and Kerberos are not built",
    f"{_PACKAGE}AuthenticationProviderAthenz": "Athenz is not built",
}


def kinds_of(names: Iterable[str]) -> list[ProviderKind]:
    """What the names stand for, each once. Raises ConfigurationError."""
    found: dict[ProviderKind, None] = {}
    for name in names:
        kind = KINDS.get(name)
        if kind is None:
            why = UNBUILT.get(name, "no such provider is known, and classes of Java are not loaded")
            raise ConfigurationError(f"{KEY}={name}: {why}; expected {', '.join(KINDS)}")
        found[kind] = None
    return [*found]
