"""Whether a process may start where strangers reach it. Pure.

Without authentication whoever reaches a port may do everything that is done there. So nothing listens beyond loopback
without it, unless the operator says that this is meant: ``gemingaAllowOpen=true``, where the network keeps strangers
away.

========== ================= ============== ========
listens on is authenticated  said           starts
========== ================= ============== ========
loopback   any               any            yes
beyond     yes               any            yes
beyond     no                yes            yes, and warns
beyond     no                no             no
========== ================= ============== ========
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.app.servers.core.addresses import is_loopback
from geminga.model.errors import ConfigurationError

#: Says that it is meant.
ALLOW_OPEN: Final = "gemingaAllowOpen"
#: What strangers may do, by what listens.
OF_BROKER: Final = "read, write and delete everything"
OF_BOOKIE: Final = "read all entries, add entries, and fence ledgers, so that their writers lose them"
OF_PROXY: Final = "read, write and delete what the proxy may at its brokers"
OF_STATE: Final = "read metrics and state"
#: The setting of a bookie's host for HTTP, by that of its port.
HOST_KEYS: Final = {"httpServerPort": "httpServerHost", "prometheusStatsHttpPort": "prometheusStatsHttpAddress"}


class Opening(NamedTuple):
    """A place where a process is to listen."""

    #: The setting that says so.
    key: str
    host: str
    #: What who reaches it may do there.
    may: str


def check_start(openings: Iterable[Opening], *, is_authenticated: bool, may_be_open: bool) -> None:
    """Raise ConfigurationError where a start must be refused, for all of its reasons."""
    if is_authenticated or may_be_open:
        return
    outside = [opening for opening in openings if not is_loopback(opening.host)]
    if not outside:
        return
    named = "; ".join(
        f"{opening.key}={opening.host}: whoever reaches this machine can {opening.may}"
        for opening in dict.fromkeys(outside)
    )
    raise ConfigurationError(
        f"{named}. There is no authentication here, so that this does not start; expected an address of this machine "
        f"alone (127.0.0.1), authenticationEnabled=true, or {ALLOW_OPEN}=true where the network keeps strangers away"
    )
