"""``/admin/local-policies/TENANT/NAMESPACE``: how a cluster cuts a namespace into bundles, as Pulsar's JSON. Pure.

The document is kept whole: what this version does not know survives a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.core.coercion import Document, Json, decode_document
from geminga.broker.ownership.core.bundles import (
    Bundles,
    boundary_of,
    boundary_text,
    bundles_of,
    equal_bundles,
    shown,
    whole,
)
from geminga.model.errors import CorruptionError, PreconditionFailedError

LOCAL_POLICIES_PATH: Final = "/admin/local-policies"


def local_policies_path(namespace: str) -> str:
    """Where a namespace's are."""
    return f"{LOCAL_POLICIES_PATH}/{namespace}"


def decode_local_policies(namespace: str, value: bytes) -> Document:
    """The document, whose bundles are read by :func:`bundles_in`. Raises CorruptionError."""
    return decode_document(local_policies_path(namespace), value)


def bundles_in(namespace: str, document: Mapping[str, Json]) -> Bundles:
    """How the namespace is cut: what is said of nothing else is one bundle. Raises CorruptionError."""
    try:
        return _bundles_in(namespace, document.get("bundles"))
    except PreconditionFailedError as error:
        raise CorruptionError(f"metadata node {local_policies_path(namespace)}: {error}") from error


def _bundles_in(namespace: str, data: Json) -> Bundles:
    if data is None:
        return whole(namespace)
    if not isinstance(data, dict):
        raise PreconditionFailedError(f"bundles are a JSON object with boundaries, not {shown(data)}")
    boundaries = data.get("boundaries")
    if not isinstance(boundaries, list):
        raise PreconditionFailedError(f"the boundaries of bundles are a list, not {shown(boundaries)}")
    return bundles_of(namespace, [boundary_of(text) for text in boundaries])


def bundles_data(bundles: Bundles) -> Document:
    """Pulsar's ``BundlesData``."""
    boundaries: list[Json] = [boundary_text(boundary) for boundary in bundles.boundaries]
    return {"boundaries": boundaries, "numBundles": len(boundaries) - 1}


def with_bundles(document: Mapping[str, Json], bundles: Bundles) -> Document:
    """The document with other bundles and all else as it was."""
    return {**document, "bundles": bundles_data(bundles)}


def with_cuts(namespace: str, policies: Mapping[str, Json], bundles: Bundles) -> Document:
    """A namespace's (global) policies with these cuts too: another split may have told its own before.

    Raises CorruptionError.
    """
    before = bundles_in(namespace, first_local_policies(namespace, policies))
    both = bundles_of(namespace, sorted({*before.boundaries, *bundles.boundaries}))
    return with_bundles(policies, both)


def first_local_policies(namespace: str, policies: Mapping[str, Json]) -> Document:
    """What they begin with, by the namespace's (global) policies. Raises CorruptionError.

    ``bundles`` of the policies without boundaries are as many equal ones as they say.
    """
    data = policies.get("bundles")
    count = data.get("numBundles") if isinstance(data, dict) and not data.get("boundaries") else None
    try:
        if isinstance(count, int) and count > 0:
            bundles = equal_bundles(namespace, count)
        else:
            bundles = _bundles_in(namespace, None if count is not None else data)
    except PreconditionFailedError as error:
        raise CorruptionError(f"policies of namespace {namespace}: {error}") from error
    return {"bundles": bundles_data(bundles), "migrated": False}
