"""Drivers and roots: from Pulsar's names of drivers and settings to where a lake is. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from geminga.model.errors import ConfigurationError

FILESYSTEM: Final = "filesystem"
#: Names of Pulsar for a bucket that speaks S3.
BUCKETS: Final = ("S3", "aws-s3")
DRIVERS: Final = (FILESYSTEM, *BUCKETS)
#: Drivers of Pulsar that are not here.
FOREIGN_DRIVERS: Final = ("google-cloud-storage", "azureblob", "aliyun-oss")
ROOT: Final = "root"
REGION: Final = "region"
ENDPOINT: Final = "serviceEndpoint"


def driver_named(name: str) -> str:
    """The driver as it is written here; case does not count, as in Pulsar. Raises ConfigurationError."""
    for known in DRIVERS:
        if name.lower() == known.lower():
            return known
    expected = ", ".join(DRIVERS)
    if name.lower() in FOREIGN_DRIVERS:
        raise ConfigurationError(f"offload driver {name!r} of Apache Pulsar is not built; expected one of {expected}")
    raise ConfigurationError(f"offload driver {name!r} is not known; expected one of {expected}")


def directory_root(uri: str) -> str:
    """``file:///path`` of a ``fileSystemURI``, or of a path. Raises ConfigurationError."""
    parts = urlsplit(uri) if "://" in uri else None
    if parts is not None and (parts.query or parts.fragment):
        raise ConfigurationError(f"fileSystemURI {uri!r}: expected %3F for ?, and %23 for #, in file:///path")
    if parts is not None and parts.scheme != "file":
        raise ConfigurationError(f"fileSystemURI {uri!r}: expected file:///path or an absolute path")
    path = unquote(parts.path) if parts is not None else uri
    if (parts is not None and parts.netloc not in ("", "localhost")) or not path.startswith("/"):
        raise ConfigurationError(f"fileSystemURI {uri!r}: expected file:///path or an absolute path")
    return f"file://{path.rstrip('/') or '/'}"


def bucket_root(bucket: str, prefix: str) -> str:
    """``s3://bucket/prefix``. Raises ConfigurationError."""
    if not bucket or "/" in bucket or "://" in bucket:
        raise ConfigurationError(f"offload bucket {bucket!r}: expected the name of a bucket")
    prefix = prefix.strip("/")
    return f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
