"""What the options of clients, producers and consumers may be: kinds that say what they expect.

An option of the wrong kind is refused where it is given. Later it would be an exception in the middle of a batch, a
timer or a handshake, where nobody can tell the caller. Kinds are strict: a number is no truth value, text is no member
of an enumeration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from reprlib import Repr
from typing import Final, Protocol, cast

#: Times, sizes and numbers of the protocol are signed 64-bit; counts and priorities 32-bit.
INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1
#: A hundred years: what a timer of the loop can be set to.
TIME_MS_MAX: Final = 100 * 366 * 86_400_000

_repr: Final = Repr()
_repr.maxstring = _repr.maxother = 60


class Kind(Protocol):
    """One kind of value."""

    @property
    def expected(self) -> str:
        """For a person, behind "expected"."""
        ...

    def takes(self, value: object) -> bool:
        """Whether ``value`` is of the kind."""
        ...


class Flag:
    """True or False."""

    __slots__ = ()
    expected = "True or False"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return isinstance(value, bool)


class Number:
    """A whole number within bounds, both inclusive."""

    __slots__ = ("_high", "_low", "_what")

    def __init__(self, low: int, high: int, what: str = "a whole number") -> None:
        self._low = low
        self._high = high
        self._what = what

    @property
    def expected(self) -> str:
        """See :class:`Kind`."""
        return f"{self._what} from {self._low} to {self._high}"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        is_number = isinstance(value, int) and not isinstance(value, bool | Enum)
        return is_number and self._low <= cast("int", value) <= self._high


class Text:
    """Text that can be encoded."""

    __slots__ = ()
    expected = "text"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        if not isinstance(value, str):
            return False
        try:
            value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return False
        return True


class Texts:
    """A mapping of text by text."""

    __slots__ = ()
    expected = "a mapping of text by text"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return isinstance(value, Mapping) and all(TEXT.takes(text) for pair in value.items() for text in pair)


class Member:
    """A member of an enumeration."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Enum]) -> None:
        self._kind = kind

    @property
    def expected(self) -> str:
        """See :class:`Kind`."""
        name = self._kind.__name__
        return "one of " + ", ".join(f"{name}.{member}" for member in self._kind.__members__)

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return isinstance(value, self._kind)


class Instance:
    """An object of a class; with ``holds``, one whose attribute of that name is true."""

    __slots__ = ("_holds", "_kind", "expected")

    def __init__(self, kind: type, expected: str = "", *, holds: str = "") -> None:
        self._kind = kind
        self._holds = holds
        self.expected = expected or f"a {kind.__name__}"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return isinstance(value, self._kind) and (not self._holds or bool(getattr(value, self._holds)))


class Function:
    """Something that can be called; ``is_plain``: and whose result nobody has to await."""

    __slots__ = ("_is_plain", "expected")

    def __init__(self, expected: str, *, is_plain: bool = False) -> None:
        self._is_plain = is_plain
        self.expected = f"{expected}, no coroutine function" if is_plain else expected

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return callable(value) and not (self._is_plain and _is_coroutine_function(value))


class With:
    """An object with certain methods, or with attributes called so; ``are_plain``: none has to be awaited."""

    __slots__ = ("_are_plain", "_names", "expected")

    def __init__(self, expected: str, *names: str, are_plain: bool = False) -> None:
        self._names = names
        self._are_plain = are_plain
        plain = ", no coroutine function among them" if are_plain else ""
        self.expected = f"{expected} (an object with {', '.join(names)}{plain})"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`. A class is no object of its own."""
        if isinstance(value, type) or not all(hasattr(value, name) for name in self._names):
            return False
        return not (self._are_plain and any(_is_coroutine_function(getattr(value, name)) for name in self._names))


def _is_coroutine_function(value: object) -> bool:
    # An object that can be called has its function at its class.
    is_object = callable(value) and inspect.iscoroutinefunction(type(value).__call__)
    return is_object or inspect.iscoroutinefunction(value)


class Many:
    """A list or tuple of one kind."""

    __slots__ = ("_kind",)

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    @property
    def expected(self) -> str:
        """See :class:`Kind`."""
        return f"a list, each {self._kind.expected}"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
            return False
        return all(self._kind.takes(one) for one in value)


class Pair:
    """A tuple or list of two of one kind."""

    __slots__ = ("_many",)

    def __init__(self, kind: Kind) -> None:
        self._many = Many(kind)

    @property
    def expected(self) -> str:
        """See :class:`Kind`."""
        return f"two in {self._many.expected}"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return self._many.takes(value) and isinstance(value, Sequence) and len(value) == 2


class Either:
    """Of one of several kinds."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: Kind) -> None:
        self._kinds = kinds

    @property
    def expected(self) -> str:
        """See :class:`Kind`."""
        return ", or ".join(kind.expected for kind in self._kinds)

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return any(kind.takes(value) for kind in self._kinds)


class Nothing:
    """None."""

    __slots__ = ()
    expected = "None"

    def takes(self, value: object) -> bool:
        """See :class:`Kind`."""
        return value is None


def problem_of_type(name: str, value: object, kind: Kind) -> str | None:
    """As :func:`problem`, for what must not be shown: a secret of the wrong type."""
    return None if kind.takes(value) else f"{name}=<{type(value).__name__}>: expected {kind.expected}"


FLAG: Final = Flag()
TEXT: Final = Text()
TEXTS: Final = Texts()
NOTHING: Final = Nothing()
#: Milliseconds, 0 included, and not.
TIME_MS: Final = Number(0, TIME_MS_MAX)
TIME_MS_POSITIVE: Final = Number(1, TIME_MS_MAX)
SIZE_BYTES: Final = Number(0, INT64_MAX)
COUNT: Final = Number(0, INT32_MAX)
COUNT_POSITIVE: Final = Number(1, INT32_MAX)


def problem(name: str, value: object, kind: Kind) -> str | None:
    """What is wrong with one value; None: nothing."""
    if kind.takes(value):
        return None
    return f"{name}={_repr.repr(value)}: expected {kind.expected}"


def first_problem(options: object, kinds: Mapping[str, Kind]) -> str | None:
    """What is wrong with the first attribute of ``options`` that is not of its kind; None: nothing."""
    for name, kind in kinds.items():
        found = problem(name, getattr(options, name), kind)
        if found is not None:
            return found
    return None
