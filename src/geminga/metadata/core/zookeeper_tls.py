"""How a ZooKeeper is spoken to: the properties of its own clients about TLS, and about who they are. Pure.

Pulsar names a file of them by ``metadataStoreConfigPath``; Java's programs have them as system properties. Stores are
PEM files, which ZooKeeper takes too (3.5.5); Java's own formats are not read. A property that asks for protection that
is not there is refused, since without it the connection would be less than was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.metadata.core.zookeeper_credentials import (
    DIGEST,
    DIGEST_PATH,
    JAAS_FILE,
    SASL_IS_USED,
    SASL_PASSED_OVER,
    SASL_SECTION,
    SECTION_DEFAULT,
    ZooKeeperCredentials,
    parse_digest,
    parse_jaas,
)
from geminga.model.errors import ConfigurationError

SECURE: Final = "zookeeper.client.secure"
KEY_STORE: Final = "zookeeper.ssl.keyStore.location"
KEY_PASSWORD: Final = "zookeeper.ssl.keyStore.password"
#: A file of it, which who reads the properties puts in its place.
KEY_PASSWORD_PATH: Final = "zookeeper.ssl.keyStore.passwordPath"
KEY_TYPE: Final = "zookeeper.ssl.keyStore.type"
TRUST_STORE: Final = "zookeeper.ssl.trustStore.location"
TRUST_TYPE: Final = "zookeeper.ssl.trustStore.type"
HOSTNAMES: Final = "zookeeper.ssl.hostnameVerification"
KNOWN: Final = (
    SECURE,
    KEY_STORE,
    KEY_PASSWORD,
    KEY_TYPE,
    TRUST_STORE,
    TRUST_TYPE,
    HOSTNAMES,
)
#: What Java's client needs beside these, and this one does not: its transport, and passwords of what has no secrets.
PASSED_OVER: Final = frozenset(
    (
        "zookeeper.clientCnxnSocket",
        "zookeeper.ssl.trustStore.password",
        "zookeeper.ssl.trustStore.passwordPath",
    )
)
#: Those of who a client is.
CREDENTIALS: Final = frozenset((JAAS_FILE, SASL_SECTION, SASL_IS_USED, SASL_PASSED_OVER, DIGEST))
_OFF: Final = frozenset(("", "false"))
_BOOLEANS: Final = {"true": True, "false": False}
_PEM: Final = "PEM"
_CONVERT: Final = (
    "expected a PEM file (keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype "
    "PKCS12, then openssl pkcs12 -in store.p12 -out store.pem)"
)


class Property(NamedTuple):
    """One line of the file."""

    key: str
    text: str
    #: Where it was said.
    source: str


class ZooKeeperTls(NamedTuple):
    """TLS to the servers."""

    #: PEM file of whom to trust; empty: the system's authorities.
    trust_store: str = ""
    #: PEM file of this client's key and certificates; empty: it has none.
    key_store: str = ""
    #: Of the key; empty: it has none.
    key_password: str = ""
    #: Whether a server's certificate must name the host.
    checks_hostname: bool = True

    def __repr__(self) -> str:
        return f"ZooKeeperTls({self.trust_store!r}, {self.key_store!r})"  # without the password


def parse_credentials(properties: Iterable[Property]) -> ZooKeeperCredentials | None:
    """As whom servers are spoken to; None: as nobody. Raises ConfigurationError that names the property."""
    found = {each.key: each for each in properties if each.key in CREDENTIALS and each.text.strip()}
    jaas, digest = found.get(JAAS_FILE), found.get(DIGEST)
    if jaas is not None and not _boolean(found, SASL_IS_USED, default=True):
        jaas = None
    elif jaas is None:
        for key in (SASL_SECTION, SASL_IS_USED):
            if key in found and found[key].text.strip().lower() != "false":
                raise ConfigurationError(
                    f"{found[key].source}: {key} is set, and {JAAS_FILE} is not: nobody would be named to the "
                    f"servers; expected the path of a JAAS file in {JAAS_FILE}"
                )
    if jaas is not None and digest is not None:
        raise ConfigurationError(f"{digest.source}: {DIGEST} beside {JAAS_FILE}: expected one of them")
    if digest is not None:
        return parse_digest(digest.text, digest.source)
    if jaas is None:
        return None
    section = found[SASL_SECTION].text.strip() if SASL_SECTION in found else SECTION_DEFAULT
    return parse_jaas(jaas.text, section, jaas.source)


def parse_tls(properties: Iterable[Property]) -> ZooKeeperTls | None:
    """What is asked for; None: a plain connection. Raises ConfigurationError that names the property."""
    found: dict[str, Property] = {}
    for each in properties:
        if each.key in KNOWN:
            found[each.key] = each
        elif each.key in CREDENTIALS:
            continue  # they are no matter of TLS
        elif each.key not in PASSED_OVER and each.text.strip().lower() not in _OFF:
            raise ConfigurationError(_refusal(each))
    values = {key: each.text.strip() for key, each in found.items()}
    if not _boolean(found, SECURE, default=False):
        asked = [each for key, each in found.items() if key not in (SECURE, HOSTNAMES) and values[key]]
        if asked:
            raise ConfigurationError(
                f"{asked[0].source}: {asked[0].key} is set, and {SECURE} is not: the connection would be plain; "
                f"expected {SECURE}=true"
            )
        return None
    for place, kind in ((KEY_STORE, KEY_TYPE), (TRUST_STORE, TRUST_TYPE)):
        _check_type(found.get(place), values.get(kind, ""))
    return ZooKeeperTls(
        values.get(TRUST_STORE, ""),
        values.get(KEY_STORE, ""),
        values.get(KEY_PASSWORD, ""),
        _boolean(found, HOSTNAMES, default=True),
    )


def _boolean(found: dict[str, Property], key: str, *, default: bool) -> bool:
    if key not in found or not found[key].text.strip():
        return default
    value = _BOOLEANS.get(found[key].text.strip().lower())
    if value is None:
        raise ConfigurationError(f"{found[key].source}: {key}={found[key].text}: expected true or false")
    return value


def _check_type(store: Property | None, kind: str) -> None:
    """Its type, or as in ZooKeeper the ending of its name, must be PEM."""
    if store is None or not store.text.strip():
        return
    if (kind or store.text.strip().rpartition(".")[2]).upper() != _PEM:
        raise ConfigurationError(f"{store.source}: {store.key}={store.text}: {_CONVERT}")


def _refusal(one: Property) -> str:
    known = (*KNOWN, JAAS_FILE, SASL_SECTION, SASL_IS_USED, DIGEST, DIGEST_PATH)
    return f"{one.source}: {one.key} is not known here; expected one of {', '.join(known)}"
