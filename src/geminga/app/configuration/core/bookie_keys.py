"""Keys of BookKeeper's ``bk_server.conf`` that ask a bookie for what Geminga's does not have. Pure.

Those that ask for protection keep the bookie from starting: without it, it would be open to whoever reaches it. What
else is missing is named in a warning. docs/configuration.md lists the same groups; a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.app.configuration.core.unbuilt_keys import Unbuilt

_OFF: Final = frozenset({"", "false", "0", "-1", "null"})


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GROUPS: Final = (
    Unbuilt(
        "Authentication",
        "everyone would be served, for tlsProviderFactoryClass is not set",
        _keys("bookieAuthProviderFactoryClass authorizedRoles"),
        is_refused=True,
        quiet=_OFF,
    ),
    Unbuilt(
        "SASL, and who may start a bookie",
        "everyone would be served",
        _keys("permittedStartupUsers saslJaasClientAllowedIds"),
        is_refused=True,
        quiet=_OFF,
    ),
    Unbuilt(
        "TLS to a bookie",
        "entries could be read on their way, for tlsProviderFactoryClass is not set",
        _keys(
            "tlsClientAuthentication tlsCertificatePath tlsKeyStore tlsKeyStorePasswordPath tlsTrustStore "
            "tlsTrustStorePasswordPath"
        ),
        is_refused=True,
        quiet=_OFF,
    ),
    Unbuilt(
        "Access lists in ZooKeeper",
        "whoever reaches it could change what bookies are and hold",
        _keys("zkEnableSecurity"),
        is_refused=True,
        quiet=_OFF,
    ),
    Unbuilt(
        "Addresses",
        "set bindAddress, advertisedAddress or bookieId",
        _keys("listeningInterface useHostNameAsBookieID useShortHostName"),
        quiet=_OFF,
    ),
    Unbuilt(
        "Index directories",
        "the index lies with the entry logs",
        _keys("indexDirectories"),
        quiet=_OFF,
    ),
    Unbuilt(
        "Other servers",
        "there are none",
        _keys("extraServerComponents"),
        quiet=_OFF,
    ),
    Unbuilt(
        "More directories at a later start",
        "a bookie has one journal directory and one ledger directory",
        _keys("allowStorageExpansion"),
        quiet=_OFF,
    ),
)

#: By key.
NOT_BUILT: Final[Mapping[str, Unbuilt]] = {key: group for group in GROUPS for key in group.keys}


def asked_of_bookie(key: str, text: str) -> Unbuilt | None:
    """The group of what ``key=text`` asks for and this bookie does not have; None if it asks for nothing."""
    group = NOT_BUILT.get(key)
    return None if group is None or text.strip().lower() in group.quiet else group
