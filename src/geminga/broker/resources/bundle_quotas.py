"""What an operator lets expect of a bundle's load: Pulsar's ``ResourceQuota`` below ``/loadbalance/resource-quota``.

The leader begins with it where nothing was ever reported of the bundle (``load/core/histories.py``). Pulsar's default
for all others is told and kept here as there, and as there the modular load manager asks nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from geminga.broker.core.coercion import BodyError, Document, Json, boolean_of, encode_document, object_of, shown
from geminga.broker.load_rules.histories import QUOTA_PATH, bundle_data_path, decode_bundle_data, quota_path
from geminga.broker.resources.documents import DocumentStore
from geminga.model.errors import PreconditionFailedError

#: Messages and bytes a second, megabytes.
NUMBERS: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")
DYNAMIC: Final = "dynamic"
DEFAULT_PATH: Final = f"{QUOTA_PATH}/default"
#: Where nobody said anything; Pulsar's figures.
INITIAL: Final[Mapping[str, Json]] = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100_000.0,
    "bandwidthOut": 300_000.0,
    "memory": 80.0,
    DYNAMIC: True,
}


def checked_quota(value: Json) -> Document:
    """What a client sent -> the document to store: what is not said is 0, and ``dynamic`` true; others are left out.

    Raises BodyError; PreconditionFailedError for less than nothing, or what is no amount.
    """
    given = object_of(value, "the body")
    dynamic = given.get(DYNAMIC)
    return {
        **{name: _amount(given.get(name), name) for name in NUMBERS},
        DYNAMIC: True if dynamic is None else boolean_of(dynamic, DYNAMIC),
    }


def _amount(value: Json, name: str) -> float:
    if value is None:
        return 0.0
    try:
        number = math.nan if isinstance(value, bool | list | dict) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise BodyError(f"{name} must be a number, not {shown(value)}")
    if number < 0 or math.isinf(number):
        raise PreconditionFailedError(f"{name} must be 0 or more, and finite, not {shown(value)}")
    return number


class BundleQuotas:
    """Read, set and remove; ``bundle`` is a full name: ``tenant/namespace/0x00000000_0x40000000``. StorageError."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def default(self) -> Document:
        """Of bundles that have none of their own."""
        found = await self._store.find(DEFAULT_PATH)
        return {**INITIAL} if found is None else found.document

    async def set_default(self, quota: Document) -> None:
        """Raises ConflictError where others keep changing it."""
        await self._store.put(DEFAULT_PATH, lambda _: quota)

    async def get(self, bundle: str) -> Document:
        """A bundle's own, or the default."""
        found = await self._store.find(quota_path(bundle))
        return await self.default() if found is None else found.document

    async def set(self, bundle: str, quota: Document) -> None:
        """Raises ConflictError where others keep changing it."""
        await self._store.put(quota_path(bundle), lambda _: quota)

    async def remove(self, bundle: str) -> None:
        """The default holds again. Raises NotFoundError where it did."""
        path = quota_path(bundle)
        await self._store.delete(path, missing=f"path {path} not found.", not_empty="a quota has nothing below it")


class BundleLoads:
    """What leaders remember of bundles (``load/stored_histories.py``)."""

    __slots__ = ("_store",)

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def bytes_per_s(self, bundle: str) -> float:
        """In and out together, of late; 0 for one that nothing was reported of. Raises StorageError."""
        path = bundle_data_path(bundle)
        found = await self._store.find(path)
        if found is None:
            return 0.0
        rates = decode_bundle_data(path, encode_document(found.document)).short.rates
        return rates.bytes_in + rates.bytes_out
