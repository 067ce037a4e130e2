"""Read, modify, compare-and-set: how callers of the store survive lost races and unknown outcomes.

An unknown outcome is settled by reading back: the value we wrote at the version it would have got is taken as
ours, the old version as "not written, try again". Two writers that write the *same* bytes can not be told
apart by that: where it matters who wrote, the value must hold something unique (a token).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, Node
from geminga.model.errors import BadVersionError, NodeNotEmptyError, NoSuchNodeError, UnknownOutcomeError

#: Rounds of read and write before giving up; each lost round means that another writer made progress.
CAS_ATTEMPTS_MAX: Final = 32


class CasResult(NamedTuple):
    """A node's value and version as they are after the call."""

    value: bytes
    version: int


async def update(
    store: MetadataStore,
    path: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    known: CasResult | None = None,
    attempts_max: int = CAS_ATTEMPTS_MAX,
) -> CasResult | None:
    """Replace the node's value by ``change(value)``; ``value`` is None if there is no node.

    ``change`` returns None to leave the node as it is; the result is then what was read (None: no node).
    It may be called several times and may meet its own earlier effect if an outcome was unknown and another
    writer came in between: it must recognise that. ``known``: try first on this value and version, unread.
    Raises BadVersionError after ``attempts_max`` lost rounds, UnknownOutcomeError after as many unknown ones.
    """
    error: BadVersionError | UnknownOutcomeError | None = None
    before = known
    try:
        for attempt in range(attempts_max):
            if attempt or known is None:
                before = _written(await store.get(path))
            value = change(None if before is None else before.value)
            if value is None:
                return before
            version = MUST_NOT_EXIST if before is None else before.version
            try:
                result = await store.put(path, value, expected_version=version)
                return CasResult(value, result.stat.version)
            except BadVersionError as lost:
                error = lost
            except UnknownOutcomeError as unknown:
                error = unknown
                after = await store.get(path)
                if after is not None and after.stat.version == version + 1 and after.value == value:
                    return _written(after)
        raise error if error is not None else BadVersionError(f"{path}: no attempt was allowed")
    finally:
        del error  # see runtime's value_of


async def put_if_absent(store: MetadataStore, path: str, value: bytes, *, attempts_max: int = CAS_ATTEMPTS_MAX) -> bool:
    """Create the node; False if it exists with another value. See the module about equal values."""
    written = await update(
        store, path, lambda found: value if found is None else None, known=None, attempts_max=attempts_max
    )
    return written is not None and written.value == value


async def remove(
    store: MetadataStore, path: str, *, expected_version: int | None = None, attempts_max: int = CAS_ATTEMPTS_MAX
) -> bool:
    """Delete the node; False if it was gone already (or went in an attempt whose outcome was unknown).

    Raises BadVersionError if it has another version, NodeNotEmptyError, UnknownOutcomeError.
    """
    unknown: UnknownOutcomeError | None = None
    try:
        for _ in range(attempts_max):
            try:
                await store.delete(path, expected_version=expected_version)
                return True
            except NoSuchNodeError:
                return unknown is not None
            except UnknownOutcomeError as error:
                unknown = error
        raise unknown if unknown is not None else UnknownOutcomeError(f"{path}: no attempt was allowed")
    finally:
        del unknown  # see runtime's value_of


async def remove_read(store: MetadataStore, path: str, node: Node, *, attempts_max: int = CAS_ATTEMPTS_MAX) -> None:
    """Delete the node if it is as it was read; fine if it is gone.

    A node that another made after ours went has another time of creation, or another value at our version: it stays.
    Raises BadVersionError if somebody changed it since, NodeNotEmptyError, UnknownOutcomeError.
    """
    unknown: UnknownOutcomeError | None = None
    try:
        for _ in range(attempts_max):
            try:
                await store.delete(path, expected_version=node.stat.version)
                return
            except NoSuchNodeError:
                return
            except UnknownOutcomeError as error:
                unknown = error
            after = await store.get(path)
            if after is None or after.stat.created_ms != node.stat.created_ms or after.stat.version < node.stat.version:
                return
            if after.stat.version != node.stat.version:
                raise BadVersionError(f"{path}: version {node.stat.version} expected, found {after.stat.version}")
            if after.value != node.value:
                return
        raise unknown if unknown is not None else UnknownOutcomeError(f"{path}: no attempt was allowed")
    finally:
        del unknown  # see runtime's value_of


def _written(node: Node | None) -> CasResult | None:
    return None if node is None else CasResult(node.value, node.stat.version)


async def remove_if_empty(store: MetadataStore, path: str) -> bool:
    """Remove a parent that the store made on the way to another node; True: there is none now.

    It stays if it has a value or children, also such as come meanwhile. Raises MetadataError.
    """
    node = await store.get(path)
    if node is None:
        return True
    if node.value:
        return False
    try:
        await remove_read(store, path, node)
    except (NodeNotEmptyError, BadVersionError):
        return False
    return True


async def remove_empty_from(store: MetadataStore, path: str, top: str) -> None:
    """:func:`remove_if_empty` for ``path``, then its parents below ``top``, to the first that stays. MetadataError."""
    while path.startswith(f"{top}/") and await remove_if_empty(store, path):
        path = path.rpartition("/")[0]
