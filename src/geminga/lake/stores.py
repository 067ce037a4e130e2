"""Which driver keeps its files where: from roots to stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from geminga.lake.core.roots import ENDPOINT, REGION, ROOT
from geminga.model.errors import ConfigurationError
from geminga.model.extras import needed_for

if TYPE_CHECKING:
    from geminga.lake.store import LakeStore


def open_store(driver: str, properties: Mapping[str, str]) -> LakeStore:
    """The store at a root. Raises ConfigurationError, OSError, MissingExtraError."""
    root = properties.get(ROOT, "")
    if root.startswith("file://"):
        from geminga.lake.directory_store import DirectoryStore

        return DirectoryStore(root.removeprefix("file://"))
    if root.startswith("s3://"):
        from geminga.lake.bucket_store import BucketStore

        bucket, _, prefix = root.removeprefix("s3://").partition("/")
        with needed_for("A bucket as lake", "lake"):
            return BucketStore(bucket, prefix, region=properties.get(REGION, ""), endpoint=properties.get(ENDPOINT, ""))
    raise ConfigurationError(f"offload driver {driver!r}: {root!r} is no root of a lake")
