"""``metadataStoreConfigPath``: a file of ZooKeeper's client properties, which say how its servers are spoken to."""

from __future__ import annotations

from typing import Final

from geminga.app.configuration.config_sources import read_file
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.core.zookeeper_tls import KEY_PASSWORD, KEY_PASSWORD_PATH, Property, parse_tls
from geminga.model.errors import ConfigurationError

#: Of a file that holds a password.
PASSWORD_BYTES_MAX: Final = 4096


def with_client_config(address: ZooKeeperAddress, path: str) -> ZooKeeperAddress:
    """``address``, spoken to as the file says; no path: plainly. Raises ConfigurationError, also for its stores."""
    if not path:
        return address
    properties: list[Property] = []
    for entry in read_file(path):
        if entry.key == KEY_PASSWORD_PATH and entry.text.strip():
            properties.append(Property(KEY_PASSWORD, _password(entry.text.strip()), entry.source))
        elif entry.key != KEY_PASSWORD_PATH:
            properties.append(Property(entry.key, entry.text, entry.source))
    tls = parse_tls(properties)
    if tls is not None:
        from geminga.metadata.zookeeper.tls import tls_context

        tls_context(tls)  # what is wrong with its files is said now, and not by a connection that never is
    return address._replace(tls=tls)


def _password(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(PASSWORD_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{KEY_PASSWORD_PATH}={path}: {reason}; expected a file of a password") from error
