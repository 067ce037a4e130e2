"""The metadata store in an Apache ZooKeeper, over kazoo on a thread of its own. Loaded by who is told to use it."""

from geminga.model.extras import needed_for

with needed_for("Metadata in ZooKeeper"):
    from geminga.metadata.zookeeper.store import ZooKeeperMetadataStore

__all__ = ["ZooKeeperMetadataStore"]
