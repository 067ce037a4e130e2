"""Clients that go on with another cluster: by themselves, or when somebody says so.

::

    provider = AutoClusterFailover("pulsar://east:6650", ["pulsar://west:6650"], failover_delay_s=30)
    client = geminga.client.connect(provider)
"""

from __future__ import annotations

from geminga.client._api.service_targets import FailoverClient, ServiceTarget, ServiceUrlProvider
from geminga.client.failover.automatic import AutoClusterFailover
from geminga.client.failover.controlled import ControlledClusterFailover

__all__ = [
    "AutoClusterFailover",
    "ControlledClusterFailover",
    "FailoverClient",
    "ServiceTarget",
    "ServiceUrlProvider",
]
