"""Bundles: the ranges of topic hashes that a namespace is cut into, the unit of ownership. Pure.

``docs/formats/namespace-bundles.md`` has the facts. Every hash lies in exactly one bundle: boundaries ascend from
``0x00000000`` to ``0xffffffff``, a bundle begins with its lower one and ends before its upper one, but for the last,
which has both.
"""

from __future__ import annotations

import itertools
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import PreconditionFailedError
from geminga.model.topic_name import TopicName

FIRST_HASH: Final = 0
LAST_HASH: Final = 0xFFFFFFFF
#: Bundles of one namespace: what its local policies may hold without being taken for damage.
NAMESPACE_BUNDLES_MAX: Final = 65_536
#: Characters of a value that an error shows.
_SHOWN_CHARACTERS: Final = 40


def topic_hash(full_name: str) -> int:
    """CRC-32 of the full name, a partition's suffix and the domain included."""
    return zlib.crc32(full_name.encode())


def boundary_text(boundary: int) -> str:
    """As it is stored: eight hex digits."""
    return f"0x{boundary:08x}"


def boundary_of(text: object) -> int:
    """The inverse of :func:`boundary_text`. Raises PreconditionFailedError."""
    try:
        # Of Java's ``Long.decode``, which reads them there, what Pulsar writes.
        if isinstance(text, str) and text[:2] in ("0x", "0X") and text.isascii() and text[2:].isalnum():
            value = int(text, 16)
            if value <= LAST_HASH:
                return value
    except ValueError:
        pass
    raise PreconditionFailedError(
        f"a bundle's boundary is 0x and up to eight hex digits, such as 0x40000000, not {shown(text)}"
    )


def shown(value: object) -> str:
    """As much of it as an error tells."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class Bundle(NamedTuple):
    """One range of a namespace's hashes."""

    #: ``tenant/namespace``.
    namespace: str
    lower: int
    upper: int

    @property
    def range(self) -> str:
        """``0x00000000_0x40000000``: what it is called within its namespace."""
        return f"{boundary_text(self.lower)}_{boundary_text(self.upper)}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"

    def has_hash(self, value: int) -> bool:
        """Whether a topic of that hash lies in it."""
        return self.lower <= value < self.upper or value == self.upper == LAST_HASH

    def overlaps(self, other: Bundle) -> bool:
        """Whether a topic could lie in both."""
        return self.namespace == other.namespace and self.lower < other.upper and other.lower < self.upper

    def has(self, name: TopicName) -> bool:
        """Whether the topic lies in it."""
        return name.namespace == self.namespace and self.has_hash(topic_hash(str(name)))


class Bundles(NamedTuple):
    """How one namespace is cut; made by :func:`bundles_of`, which checks it."""

    namespace: str
    #: Ascending, the first and the last hash included.
    boundaries: tuple[int, ...]

    def at(self, value: int) -> Bundle:
        """The bundle that a hash lies in."""
        index = min(bisect_right(self.boundaries, value), len(self.boundaries) - 1)
        return Bundle(self.namespace, self.boundaries[index - 1], self.boundaries[index])

    def find(self, name: TopicName) -> Bundle:
        """The bundle of a topic of this namespace."""
        return self.at(topic_hash(str(name)))

    def all(self) -> list[Bundle]:
        """Ascending."""
        ends = self.boundaries
        return [Bundle(self.namespace, lower, upper) for lower, upper in itertools.pairwise(ends)]

    def has(self, bundle: Bundle) -> bool:
        """Whether it is one of these, with these very boundaries."""
        return bundle.namespace == self.namespace and self.at(bundle.lower) == bundle

    def named(self, text: str) -> Bundle:
        """The bundle of a range such as ``0x00000000_0x40000000``. Raises PreconditionFailedError."""
        lower, separator, upper = text.partition("_")
        if not separator:
            raise PreconditionFailedError(
                f"a bundle is two boundaries, 0x and eight hex digits each, with _ between them, not {shown(text)}"
            )
        bundle = Bundle(self.namespace, boundary_of(lower), boundary_of(upper))
        if not self.has(bundle):
            raise PreconditionFailedError(f"namespace {self.namespace} has no bundle {bundle.range}")
        return bundle

    def with_split(self, bundle: Bundle, keys: Sequence[int]) -> Bundles:
        """With ``bundle`` cut before each of ``keys``, in whatever order. Raises PreconditionFailedError."""
        if not self.has(bundle):
            raise PreconditionFailedError(f"namespace {self.namespace} has no bundle {bundle.range}")
        if bundle.upper - bundle.lower < 2:
            raise PreconditionFailedError(f"bundle {bundle} can not be split further: its range is not larger than 1")
        if not keys:
            raise PreconditionFailedError(f"nothing was said about where to split bundle {bundle}")
        cuts = sorted(set(keys))
        if cuts[0] <= bundle.lower or cuts[-1] >= bundle.upper:
            wrong = cuts[0] if cuts[0] <= bundle.lower else cuts[-1]
            raise PreconditionFailedError(
                f"bundle {bundle} is split at keys between its boundaries, and {wrong:#x} is not"
            )
        if len(self.boundaries) - 1 + len(cuts) > NAMESPACE_BUNDLES_MAX:
            raise PreconditionFailedError(
                f"namespace {self.namespace} would have more than {NAMESPACE_BUNDLES_MAX} bundles"
            )
        index = self.boundaries.index(bundle.lower) + 1
        return Bundles(self.namespace, (*self.boundaries[:index], *cuts, *self.boundaries[index:]))


class BundleIndex:
    """Which of some bundles a topic lies in, of any namespaces, in time that grows with their number's logarithm.

    Where some overlap, as a bundle and its parts do while it is split, the one that reaches furthest is found.
    """

    __slots__ = ("_by_namespace",)

    def __init__(self, bundles: Iterable[Bundle]) -> None:
        #: Lower boundaries, ascending, and for each the bundle that reaches furthest of those up to there.
        self._by_namespace: dict[str, tuple[list[int], list[Bundle]]] = {}
        for bundle in sorted(bundles):
            lowers, reaching = self._by_namespace.setdefault(bundle.namespace, ([], []))
            lowers.append(bundle.lower)
            reaching.append(bundle if not reaching or reaching[-1].upper < bundle.upper else reaching[-1])

    def find(self, name: TopicName) -> Bundle | None:
        """None: it lies in none of them."""
        if name.namespace not in self._by_namespace:
            return None
        return self.find_hash(name.namespace, topic_hash(str(name)))

    def find_hash(self, namespace: str, value: int) -> Bundle | None:
        """The same of a topic of that hash."""
        lowers, reaching = self._by_namespace.get(namespace, ((), ()))
        index = bisect_right(lowers, value) - 1
        return reaching[index] if index >= 0 and reaching[index].has_hash(value) else None


def bundles_of(namespace: str, boundaries: Sequence[int]) -> Bundles:
    """Raises PreconditionFailedError unless they cut all hashes into ranges that are not empty."""
    found = tuple(boundaries)
    if len(found) < 2 or found[0] != FIRST_HASH or found[-1] != LAST_HASH:
        raise PreconditionFailedError(
            f"the bundles of {namespace} must reach from {boundary_text(FIRST_HASH)} to {boundary_text(LAST_HASH)}"
        )
    if len(found) - 1 > NAMESPACE_BUNDLES_MAX:
        raise PreconditionFailedError(f"{namespace} has {len(found) - 1} bundles, more than {NAMESPACE_BUNDLES_MAX}")
    for lower, upper in itertools.pairwise(found):
        if lower >= upper:
            raise PreconditionFailedError(
                f"the boundaries of the bundles of {namespace} must ascend, "
                f"and {boundary_text(upper)} comes after {boundary_text(lower)}"
            )
    return Bundles(namespace, found)


def whole(namespace: str) -> Bundles:
    """One bundle of everything."""
    return Bundles(namespace, (FIRST_HASH, LAST_HASH))


def equal_bundles(namespace: str, count: int) -> Bundles:
    """As many of one size, the last of which has the rest. Raises PreconditionFailedError."""
    if not 1 <= count <= NAMESPACE_BUNDLES_MAX:
        raise PreconditionFailedError(f"a namespace has 1 to {NAMESPACE_BUNDLES_MAX} bundles, not {count}")
    size = (LAST_HASH + 1) // count
    return Bundles(namespace, (*(index * size for index in range(count)), LAST_HASH))
