"""Apache Pulsar's broker as a process of its own, in a cluster of a ZooKeeper and bookies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.free_ports import free_ports
from tools.interop.apache_standalone import ApacheStandalone

#: Pulsar's own defaults but for what stands here, the ports and where metadata are.
SETTINGS: Final[Mapping[str, object]] = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "functionsWorkerEnabled": "false",
    "webSocketServiceEnabled": "false",
    # The broker's own topics wait for no function worker and no replicator.
    "metadataStoreSessionTimeoutMillis": 4000,
    "brokerShutdownTimeoutMs": 10000,
}


class ApacheBroker(ApacheStandalone):
    """``pulsar broker`` on the ZooKeeper ``metadata`` (``zk:host:port``)."""

    def __init__(
        self, data: Path, *, log: Path, metadata: str, cluster: str, settings: Mapping[str, object] | None = None
    ) -> None:
        urls = {"metadataStoreUrl": metadata, "configurationMetadataStoreUrl": metadata, "clusterName": cluster}
        super().__init__(data, log=log, settings={**SETTINGS, **urls, **(settings or {})})

    def command(self) -> list[str]:
        """The command line."""
        program = super().command()
        start = program.index("org.apache.pulsar.PulsarStandaloneStarter")
        return [*program[:start], "org.apache.pulsar.PulsarBrokerStarter", "-c", str(self.write_config())]

    def write_config(self) -> Path:
        """``broker.conf``, with ports that stay."""
        if not self.broker_port:
            self.broker_port, self.web_port = free_ports(2)
        self.data.mkdir(parents=True, exist_ok=True)
        config = self.data / "broker.conf"
        # Where there are ports with TLS alone, the settings say so.
        lines = {"brokerServicePort": self.broker_port, "webServicePort": self.web_port, **self.settings}
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        return config
