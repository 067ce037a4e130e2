"""Members of the documents of load: what is not known is passed over, what is wrong is named with the node. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from geminga.broker.core.coercion import Document, Json
from geminga.model.errors import CorruptionError

#: A 64-bit whole number of Java's: no rate, size or count is larger, and sums of such are finite.
AMOUNT_MAX: Final = float(1 << 63)
#: ``tenant/namespace/0x00000000_0x40000000``; what does not look so never becomes a path.
_BUNDLE: Final = re.compile(r"[^/\x00]+/[^/\x00]+/0x[0-9a-fA-F]{1,8}_0x[0-9a-fA-F]{1,8}")


def is_bundle_name(text: str) -> bool:
    """Whether it names a bundle, and may be part of a path."""
    return _BUNDLE.fullmatch(text) is not None and not {"..", "."} & set(text.split("/"))


def namespace_of(bundle: str) -> str:
    """``tenant/namespace`` of a bundle's name."""
    return bundle.rpartition("/")[0]


def amount(path: str, document: Mapping[str, Json], name: str) -> float:
    """A number that is never negative: what is absent, or could not be measured (less than 0), is 0.

    Raises CorruptionError.
    """
    value = document.get(name)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CorruptionError(f"metadata node {path}: {name} is a number")
    try:
        number = float(value)
    except OverflowError as error:
        raise CorruptionError(f"metadata node {path}: {name} is too large") from error
    if not math.isfinite(number):
        raise CorruptionError(f"metadata node {path}: {name} is not finite")
    if number > AMOUNT_MAX:
        raise CorruptionError(f"metadata node {path}: {name} is too large")
    return max(number, 0.0)


def whole(path: str, document: Mapping[str, Json], name: str) -> int:
    """Such a number, without what is behind its point."""
    return int(amount(path, document, name))


def text(path: str, document: Mapping[str, Json], name: str) -> str:
    """A text; what is absent is empty. Raises CorruptionError."""
    value = document.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CorruptionError(f"metadata node {path}: {name} is a text")
    return value


def truth(path: str, document: Mapping[str, Json], name: str, default: bool) -> bool:
    """True or false; what is absent is ``default``. Raises CorruptionError."""
    value = document.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CorruptionError(f"metadata node {path}: {name} is true or false")
    return value


def part(path: str, document: Mapping[str, Json], name: str) -> Document:
    """An object in it; what is absent is empty. Raises CorruptionError."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CorruptionError(f"metadata node {path}: {name} is a JSON object")
    return value


def texts(path: str, document: Mapping[str, Json], name: str) -> list[str]:
    """A list of texts; what is absent is empty. Raises CorruptionError."""
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise CorruptionError(f"metadata node {path}: {name} is a list")
    found = [one for one in value if isinstance(one, str)]
    if len(found) != len(value):
        raise CorruptionError(f"metadata node {path}: {name} is a list of texts")
    return found


def sorted_texts(values: Iterable[str]) -> list[Json]:
    """As a JSON list in one order, so that what did not change reads the same."""
    found: list[Json] = []
    found.extend(sorted(values))
    return found
