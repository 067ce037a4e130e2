"""Apache Pulsar's broker as a process of its own, on a ZooKeeper and bookies that a broker of ours uses, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.interop.apache_standalone import ApacheStandalone

#: As ``geminga initialize-cluster-metadata -c`` was told.
CLUSTER: Final = "mixed"
_SETTINGS: Final[dict[str, object]] = {
    "clusterName": CLUSTER,
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    "metadataStoreSessionTimeoutMillis": 4000,
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "managedLedgerCacheSizeMB": 64,
    # What a killed one leaves behind it is waited for no longer than its session.
    "brokerShutdownTimeoutMs": 20_000,
}


class ApacheBroker(ApacheStandalone):
    """The same handle as that of ``geminga broker``; ``zookeeper`` is set before it starts."""

    zookeeper = ""

    def __init__(self, directory: Path, *, settings: Mapping[str, object] | None = None) -> None:
        super().__init__(
            directory / "apache-broker",
            log=directory / "apache-broker.log",
            settings={**_SETTINGS, **(settings or {})},
        )

    def command(self) -> list[str]:
        """The command line; the file that it names is written first."""
        *program, _starter = self.program()
        store = f"zk:{self.zookeeper}"
        lines = {
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "brokerServicePort": self.broker_port,
            "webServicePort": self.web_port,
            **self.settings,
        }
        file = self.data / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        return [*program, "org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(file)]
