"""``python -m geminga.app.container.default_files DIR``: the image's ``conf/*.conf``, written when it is made.

A file has the keys that the image sets, and every other that is known as a comment, so that a variable of that name
sets it (``core/environment_keys.py``). What is right for a container stands here; defaults are those of ``geminga``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from geminga.app.configuration.bookie_config import BookieServerConfig
from geminga.app.configuration.config import CONFIG_CLASSES
from geminga.app.configuration.known_keys import KNOWN_KEYS
from geminga.app.configuration.links_config import LinksConfig
from geminga.app.configuration.proxy_config import ProxyServerConfig
from geminga.app.configuration.tls_config import TlsConfig
from geminga.broker.authentication.config import AuthenticationConfig
from geminga.model.settings import settings_of
from geminga.proxy.config import ProxyConfig

PROXY_CLASSES: Final = (ProxyServerConfig, ProxyConfig, LinksConfig, TlsConfig, AuthenticationConfig)

_BROKER: Final[Mapping[str, str]] = {"bindAddress": "0.0.0.0", "statusFilePath": "/pulsar/status"}
FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "standalone.conf": {"bindAddress": "0.0.0.0", "clusterName": "standalone"},
    "broker.conf": {**_BROKER, "clusterName": "", "metadataStoreUrl": ""},
    "bookkeeper.conf": {
        "bindAddress": "0.0.0.0",
        "httpServerEnabled": "true",
        "httpServerHost": "0.0.0.0",
        "httpServerPort": "8000",
        "metadataServiceUri": "",
        "prometheusStatsHttpAddress": "0.0.0.0",
    },
    "proxy.conf": {"bindAddress": "0.0.0.0", "brokerServiceURL": "", "brokerWebServiceURL": "", "metadataStoreUrl": ""},
    "client.conf": {
        "webServiceUrl": "http://localhost:8080/",
        "brokerServiceUrl": "pulsar://localhost:6650/",
        "authPlugin": "",
        "authParams": "",
        "tlsTrustCertsFilePath": "",
        "tlsAllowInsecureConnection": "false",
        "tlsEnableHostnameVerification": "false",
    },
}
_HEAD: Final = """\
# Set a key here, by a variable of its name, or by PULSAR_PREFIX_<key> (bin/apply-config-from-env.py {name}), or without
# that program by GEMINGA_<key>. Keys in comments have the default that docs/configuration.md gives.
"""


def file_text(name: str) -> str:
    """The text of one of :data:`FILES`."""
    own = FILES[name]
    lines = [_HEAD.format(name=name), *(f"{key}={value}" for key, value in own.items())]
    if name != "client.conf":
        lines += ["", *(f"#{key}=" for key in sorted(_known(name)) if key not in own)]
    return "\n".join(lines) + "\n"


def _known(name: str) -> set[str]:
    """What may stand in a file."""
    if name == "proxy.conf":
        return {key for part in PROXY_CLASSES for key in settings_of(part)}
    return {key for part in (*CONFIG_CLASSES, BookieServerConfig) for key in settings_of(part)} | KNOWN_KEYS


def write_files(directory: str) -> None:
    """Write all of them."""
    os.makedirs(directory, exist_ok=True)
    for name in FILES:
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(file_text(name))


if __name__ == "__main__":
    write_files(sys.argv[1])
