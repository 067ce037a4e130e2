"""``/loadbalance/bundle-data`` and ``broker-time-average``: what leaders leave to those that come after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from geminga.broker.load_rules.cluster_load import ClusterLoad
from geminga.broker.load_rules.histories import (
    BROKER_AVERAGES_PATH,
    BUNDLE_DATA_PATH,
    BundleData,
    averages_of,
    broker_averages_path,
    bundle_data_path,
    decode_bundle_data,
    decode_quota,
    encode_averages,
    encode_bundle_data,
    quota_path,
)
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import CorruptionError, NoSuchNodeError
from geminga.runtime import get_logger

#: Bundles that are looked up at once; others begin as if nothing were known of them.
READ_MAX: Final = 10_000

_log = get_logger(__name__)


class StoredHistories:
    """See the module. What was written is overwritten whoever wrote it: histories decide about load only."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        #: Bundles that this broker wrote data of.
        self._written: set[str] = set()

    async def read(self, bundles: Iterable[str]) -> dict[str, BundleData]:
        """What is known of these: of a leader before, or else an operator's quota. Raises MetadataError."""
        found: dict[str, BundleData] = {}
        for bundle in sorted(bundles)[:READ_MAX]:
            for path, decode in ((bundle_data_path(bundle), decode_bundle_data), (quota_path(bundle), decode_quota)):
                node = await self._metadata.get(path)
                if node is None:
                    continue
                try:
                    found[bundle] = decode(path, node.value)
                    break
                except CorruptionError as error:
                    _log.warning("%s: the bundle's load is taken to be that of one that was never seen", error)
        return found

    async def write(self, cluster: ClusterLoad, bundles: Mapping[str, BundleData]) -> None:
        """Of these bundles, and of all brokers; what this broker wrote of bundles that are gone goes. MetadataError."""
        for bundle, data in sorted(bundles.items()):
            await self._metadata.put(bundle_data_path(bundle), encode_bundle_data(data), expected_version=None)
            self._written.add(bundle)
        for bundle in sorted(self._written - cluster.bundles.keys()):
            path = bundle_data_path(bundle)
            await self._delete(path)
            # Of a namespace that is gone: its last bundle.
            await cas.remove_empty_from(self._metadata, path.rpartition("/")[0], BUNDLE_DATA_PATH)
            self._written.discard(bundle)
        for broker in cluster.brokers:
            averages = averages_of(cluster.reports[broker].stats, cluster.bundles)
            await self._metadata.put(broker_averages_path(broker), encode_averages(averages), expected_version=None)
        for broker in set(await self._metadata.children(BROKER_AVERAGES_PATH)) - cluster.reports.keys():
            await self._delete(broker_averages_path(broker))

    async def _delete(self, path: str) -> None:
        try:
            await self._metadata.delete(path)
        except NoSuchNodeError:
            pass
