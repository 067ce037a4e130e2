"""``metadataStoreConfigPath``: a file of ZooKeeper's client properties, which say how its servers are spoken to."""

from __future__ import annotations

from typing import Final

from geminga.app.configuration.config_sources import read_file
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.core.zookeeper_credentials import DIGEST, DIGEST_PATH, JAAS_FILE, Scheme
from geminga.metadata.core.zookeeper_tls import (
    KEY_PASSWORD,
    KEY_PASSWORD_PATH,
    Property,
    parse_credentials,
    parse_tls,
)
from geminga.model.errors import ConfigurationError
from geminga.model.extras import needed_for

#: Of a file that holds a password, or a JAAS file.
FILE_BYTES_MAX: Final = 65_536
#: Names the file of a password -> the property that has it.
_FILES: Final = {KEY_PASSWORD_PATH: KEY_PASSWORD, DIGEST_PATH: DIGEST}


def with_client_config(address: ZooKeeperAddress, path: str) -> ZooKeeperAddress:
    """``address``, spoken to as the file says; no path: plainly. Raises ConfigurationError, also for its stores."""
    if not path:
        return address
    properties: list[Property] = []
    for entry in read_file(path):
        named = entry.text.strip()
        if entry.key == JAAS_FILE and named:
            properties.append(Property(JAAS_FILE, _text(JAAS_FILE, named, "a JAAS file"), named))
        elif entry.key in _FILES:
            if named:
                properties.append(Property(_FILES[entry.key], _text(entry.key, named).strip(), entry.source))
        else:
            properties.append(Property(entry.key, entry.text, entry.source))
    tls, credentials = parse_tls(properties), parse_credentials(properties)
    if credentials is not None and credentials.scheme is Scheme.SASL:
        with needed_for(f"SASL to a ZooKeeper ({JAAS_FILE})"):
            import puresasl.client  # noqa: F401  (kazoo goes on without it until a server asks)
    if tls is not None:
        from geminga.metadata.zookeeper.tls import tls_context

        tls_context(tls)  # what is wrong with its files is said now, and not by a connection that never is
    return address._replace(tls=tls, credentials=credentials)


def _text(key: str, path: str, expected: str = "a file of a password") -> str:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX).decode()
    except UnicodeDecodeError:  # which would show what it holds
        raise ConfigurationError(f"{key}={path}: no text in UTF-8; expected {expected}") from None
    except OSError as error:
        raise ConfigurationError(f"{key}={path}: {error.strerror or error}; expected {expected}") from error
