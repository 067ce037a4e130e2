"""Pulsar's offload policies: what may be set, and what they come to for a topic. Pure.

A member counts from the topic, else from the namespace, else from the namespace's older policies of one number each,
else from the broker. Where files go in a directory is the broker's to say: a policy may only name a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import LONG_MAX, BodyError, Document, Json, number_of, object_of, shown
from geminga.broker.policies.core.readers import long_of
from geminga.lake.core.roots import (
    ENDPOINT,
    FILESYSTEM,
    FOREIGN_DRIVERS,
    REGION,
    ROOT,
    bucket_root,
    directory_root,
    driver_named,
)
from geminga.managed_ledger.rules.offload import OFF, OffloadPolicy
from geminga.managed_ledger.shared.config import ManagedLedgerConfig
from geminga.model.errors import ConfigurationError, PreconditionFailedError
from geminga.wire.managed_ledger.offload_context import LAKE_PROPERTY, LAKE_VERSION

DRIVER: Final = "managedLedgerOffloadDriver"
DIRECTORY: Final = "fileSystemURI"
LAG: Final = "managedLedgerOffloadDeletionLagInMillis"
BYTES: Final = "managedLedgerOffloadThresholdInBytes"
SECONDS: Final = "managedLedgerOffloadThresholdInSeconds"
PRIORITY: Final = "managedLedgerOffloadedReadPriority"
PRIORITIES: Final = ("BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST")
_LONGS: Final = (LAG, BYTES, SECONDS)
#: Who asks the bucket is told by the broker's environment, never by a policy.
_CREDENTIALS: Final = (
    "s3ManagedLedgerOffloadCredentialId",
    "s3ManagedLedgerOffloadCredentialSecret",
    "s3ManagedLedgerOffloadRole",
)


#: Pulsar's sentences, word for word; the first names its drivers, of which some are not built here.
_NO_DRIVER: Final = (
    "The driver is not supported, support value: S3,aws-s3,google-cloud-storage,filesystem,azureblob,aliyun-oss"
)
_NO_BUCKET: Final = "The bucket must be specified for namespace offload."


class Older(NamedTuple):
    """A namespace's policies of one number each; None: not set."""

    threshold_bytes: int | None = None
    threshold_s: int | None = None
    deletion_lag_ms: int | None = None


def check_offload(value: Json) -> Json:
    """An ``OffloadPolicies`` that a client sent. Raises BodyError, PreconditionFailedError."""
    if value is None:
        raise PreconditionFailedError("The offloadPolicies must be specified for namespace offload.")
    document = object_of(value, "the body")
    try:
        driver = driver_named(_text(document, DRIVER))
    except ConfigurationError as error:
        is_foreign = _text(document, DRIVER).lower() in FOREIGN_DRIVERS
        raise PreconditionFailedError(f"{error}" if is_foreign else _NO_DRIVER) from error
    for key in _CREDENTIALS:
        if document.get(key):
            raise BodyError(f"{key} is not taken: credentials come from the broker's environment")
    checked = {**document, DRIVER: driver}
    for key in _LONGS:
        if document.get(key) is not None:
            checked[key] = number_of(document[key], key, LONG_MAX)
    priority = document.get(PRIORITY)
    if priority is not None and priority not in PRIORITIES:
        raise BodyError(f"{PRIORITY}: expected one of {', '.join(PRIORITIES)}, not {shown(priority)}")
    if driver != FILESYSTEM:
        if not _bucket(document):
            raise PreconditionFailedError(_NO_BUCKET)
        try:
            bucket_root(_bucket(document), "")
        except ConfigurationError as error:
            raise PreconditionFailedError(f"{error}") from error
    return checked


def bound_offload(value: Json, settings: Mapping[str, object]) -> None:
    """Refuse a directory that is not the broker's, or in it. Raises PreconditionFailedError."""
    document = object_of(value, "the body")
    if document.get(DRIVER) == FILESYSTEM:
        try:
            _directory(_text(document, DIRECTORY), str(settings[DIRECTORY]))
        except ConfigurationError as error:
            raise PreconditionFailedError(f"{error}") from error


def offload_policy(document: Document | None, older: Older, config: ManagedLedgerConfig) -> OffloadPolicy:
    """What holds for a topic; ``document``: of topic and namespace. Raises ConfigurationError."""
    found = {} if document is None else document
    name = _text(found, DRIVER) or config.offload_driver
    policy = offloaded_policy(document, older, config)
    if not name:
        return policy
    driver = driver_named(name)
    seconds = _number(found, SECONDS, older.threshold_s, config.offload_threshold_s)
    return policy._replace(
        driver=driver,
        properties=_properties(driver, found, config),
        threshold_bytes=max(OFF, _number(found, BYTES, older.threshold_bytes, config.offload_threshold_bytes)),
        threshold_ms=seconds * 1000 if seconds >= 0 else OFF,
    )


def offloaded_policy(document: Document | None, older: Older, config: ManagedLedgerConfig) -> OffloadPolicy:
    """As :func:`offload_policy`, as far as it is about what is offloaded already."""
    found = {} if document is None else document
    lag = _number(found, LAG, older.deletion_lag_ms, config.offload_deletion_lag_ms)
    priority = found.get(PRIORITY) or config.offload_read_priority.replace("-", "_").upper()
    return OffloadPolicy(deletion_lag_ms=lag, is_bookkeeper_first=priority == PRIORITIES[0])


def _properties(driver: str, document: Document, config: ManagedLedgerConfig) -> dict[str, str]:
    properties = {LAKE_PROPERTY: str(LAKE_VERSION)}
    if driver == FILESYSTEM:
        return {**properties, ROOT: _directory(_text(document, DIRECTORY), config.offload_directory)}
    bucket = _bucket(document) or config.offload_bucket or config.offload_s3_bucket
    region = _either(document, "OffloadRegion") or config.offload_region or config.offload_s3_region
    endpoint = _either(document, "OffloadServiceEndpoint") or config.offload_endpoint or config.offload_s3_endpoint
    properties[ROOT] = bucket_root(bucket, config.lake_prefix)
    return properties | {key: text for key, text in ((REGION, region), (ENDPOINT, endpoint)) if text}


def _directory(wanted: str, broker: str) -> str:
    if not broker:
        raise ConfigurationError("the driver filesystem needs fileSystemURI in the broker's configuration")
    root = directory_root(broker)
    if not wanted:
        return root
    found = directory_root(wanted)
    inside = found.removeprefix(root.rstrip("/"))
    if inside == found or (inside and not inside.startswith("/")) or ".." in inside.split("/"):
        raise ConfigurationError(f"fileSystemURI {wanted!r} is not in {root}, the broker's")
    return found


def _bucket(document: Document) -> str:
    return _either(document, "OffloadBucket")


def _either(document: Document, name: str) -> str:
    """A member under its general name, or its older one for S3."""
    return _text(document, f"managedLedger{name}") or _text(document, f"s3ManagedLedger{name}")


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _number(document: Document, key: str, older: int | None, broker: int) -> int:
    found = long_of(document.get(key))
    if found is not None:
        return found
    return broker if older is None else older
