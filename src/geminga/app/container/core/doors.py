"""What a server of the image is told beside its file: that it may be open, and where its health is asked. Pure.

An image listens on all addresses, or nobody reaches it; and a compose file calls it by any name. So while nothing asks
who clients are it starts open and answers to every Host, and says so first. Where ``authenticationEnabled=true``, or
the operator said himself how it is to be, it is as anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.app.container.core.words import STATUS_PATH
from geminga.app.servers.core.open_start import ALLOW_OPEN, OF_BOOKIE, OF_BROKER, OF_PROXY, OF_STATE

HOSTS: Final = "gemingaHttpAllowedHosts"
#: The image's servers, by what whoever reaches them may do.
_MAY: Final = {
    "standalone": OF_BROKER,
    "broker": OF_BROKER,
    "bookie": OF_BOOKIE,
    "autorecovery": OF_STATE,
    "proxy": OF_PROXY,
}
#: (key of the port of HTTP, its default, path): what answers 200 while the server serves.
_BROKER_HEALTH: Final = ("webServicePort", "8080", "/admin/v2/brokers/ready")
_PROXY_HEALTH: Final = ("webServicePort", "8080", "/health")
_BOOKIE_HEALTH: Final = {
    "bookie": ("httpServerPort", "8080", "/api/v1/bookie/is_ready"),
    "autorecovery": ("httpServerPort", "8080", "/metrics"),
}


class Doors(NamedTuple):
    """What is added."""

    #: ``key=value``, each to be given with ``--set``.
    settings: tuple[str, ...]
    #: Lines for standard error, before anything else.
    warnings: tuple[str, ...]


def open_doors(role: str, values: Mapping[str, str]) -> Doors:
    """For a server of this role, whose files and environment say ``values``."""
    if values.get("authenticationEnabled", "").lower() == "true":
        return Doors((), ())
    said = values.get(ALLOW_OPEN, "").lower()
    if said not in ("", "true"):
        return Doors((), ())
    settings = [f"{ALLOW_OPEN}=true"]
    if not values.get(HOSTS):
        settings.append(f"{HOSTS}=*")
    return Doors(
        tuple(settings),
        (
            f"OPEN: nothing asks who clients are. Whoever reaches this container can {_MAY[role]}; HTTP answers to "
            f"every Host. Publish its ports to this machine alone (127.0.0.1), keep it in a network of its own, or set "
            f"authenticationEnabled=true ({ALLOW_OPEN}=false: it does not start like this)",
        ),
    )


def health_url(role: str, values: Mapping[str, str]) -> str:
    """What the health check asks; empty: the server has no plain port of HTTP, so that its process is what counts."""
    key, default, path = _PROXY_HEALTH if role == "proxy" else _BOOKIE_HEALTH.get(role, _BROKER_HEALTH)
    if role in _BOOKIE_HEALTH and values.get("httpServerEnabled", "").lower() != "true":
        return ""
    elif key == "webServicePort" and role != "proxy" and values.get("authenticationEnabled", "").lower() == "true":
        path = STATUS_PATH
    port = values.get(key, default)
    host = _host(values.get("httpServerHost" if role in _BOOKIE_HEALTH else "bindAddress", ""))
    return f"http://{host}:{port}{path}" if port.isdecimal() and int(port) else ""


def _host(bound: str) -> str:
    """Where a server that is bound there is reached from its own container."""
    if bound in ("", "0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{bound}]" if ":" in bound else bound
