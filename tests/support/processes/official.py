"""The official client as tests want it."""

from __future__ import annotations

from pathlib import Path

import pulsar


def quiet_client(url: str, directory: Path, **options: object) -> pulsar.Client:
    """An official client whose log goes to a file."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
    return pulsar.Client(url, logger=logger, operation_timeout_seconds=20, **options)
