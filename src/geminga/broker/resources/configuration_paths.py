"""Which nodes the clusters of an instance share where ``configurationMetadataStoreUrl`` names another store.

As in Pulsar 4.2.4 (``PulsarResources``): clusters with their failure domains and isolation policies, tenants and
namespaces, numbers of partitions, resource groups. Where a cluster's topics move to, how it cuts namespaces into
bundles, its settings, ledgers and brokers are its own.
"""

from __future__ import annotations

from typing import Final

from geminga.broker.resources.clusters import CLUSTERS_PATH, policies_path
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.resources.resource_groups import GROUPS_PATH
from geminga.broker.resources.tenants import POLICIES_PATH

#: Trees that are shared.
SHARED_ROOTS: Final = (CLUSTERS_PATH, POLICIES_PATH, PARTITIONED_TOPICS_PATH, GROUPS_PATH)
#: Of a cluster's own store: where what it shares is, as ``configurationMetadataStoreUrl`` says it.
NOTED_PATH: Final = "/geminga/configuration-store"
_BORDERS: Final = ("/", "/admin")


class ConfigurationPaths:
    """Implements :class:`geminga.metadata.divided.TreeDivision`."""

    __slots__ = ()

    def is_shared(self, path: str) -> bool:
        """See ``TreeDivision.is_shared``."""
        cluster = _cluster(path)
        if cluster and (path == policies_path(cluster) or path.startswith(f"{policies_path(cluster)}/")):
            return False
        return any(path == root or path.startswith(f"{root}/") for root in SHARED_ROOTS)

    def is_border(self, path: str) -> bool:
        """See ``TreeDivision.is_border``."""
        cluster = _cluster(path)
        return path in _BORDERS or (bool(cluster) and path == f"{CLUSTERS_PATH}/{cluster}")


def _cluster(path: str) -> str:
    """The cluster that a path is of; empty: of none."""
    if not path.startswith(f"{CLUSTERS_PATH}/"):
        return ""
    return path[len(CLUSTERS_PATH) + 1 :].partition("/")[0]
