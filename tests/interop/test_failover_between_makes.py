"""Official clients under load between a cluster of Geminga's and one of Apache's, which copy to each other.

One of the two is killed and comes back: what was answered is in both at last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import pytest
from tools.standalone_process import StandaloneProcess

from integration.test_client_failover import INTERVAL_S, Load
from integration.test_geo_replication import NAMES
from interop.test_failover_of_java import has_all, keep
from interop.test_geo_replication import brokers as brokers
from support.processes.failover_load import JavaLoad, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

__all__ = ["brokers"]
RECEIPTS = 50
#: Java's automatic one goes with the second answer that fails; and a machine may be busy.
SOON_S = 2 * INTERVAL_S + 2.0 + 5.0


class Publishing(Protocol):
    """A client that publishes one message after the other."""

    def until_receipts(self, count: int) -> float:
        """The longest time without one, until so many more have come."""

    def end(self) -> Collection[str]:
        """What was answered."""


def python(first: str, then: str, _url: str) -> Publishing:
    """``first`` and ``then``: of the clusters; ``url``: who says which one is to be used."""
    return Load(first, then)


def java_auto(first: str, then: str, _url: str) -> Publishing:
    return JavaLoad("auto", "t", str(int(INTERVAL_S * 1000)), first, then)


def java_controlled(first: str, _then: str, url: str) -> Publishing:
    return JavaLoad("controlled", "t", str(int(INTERVAL_S * 1000)), url, first)


@pytest.mark.parametrize("client", [python, java_auto, java_controlled], ids=lambda client: client.__name__)
@pytest.mark.parametrize("killed", NAMES)
def test_what_was_answered_is_in_both_clusters(
    client: Callable[..., Publishing], killed: str, brokers: dict[str, StandaloneProcess]
) -> None:
    first, then = brokers[killed], next(broker for name, broker in brokers.items() if name != killed)
    for broker in (first, then):
        keep(broker)
    choice = {"serviceUrl": first.service_url}
    with told(choice) as url:
        load = client(first.service_url, then.service_url, url)
        load.until_receipts(RECEIPTS)
        first.kill()
        choice["serviceUrl"] = then.service_url
        assert load.until_receipts(RECEIPTS) < SOON_S
        first.start()
        choice["serviceUrl"] = first.service_url
        load.until_receipts(RECEIPTS)
        answered = load.end()
    assert len(answered) >= 3 * RECEIPTS
    for broker in (first, then):
        has_all(broker, set(answered))
