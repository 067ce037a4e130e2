"""What a table consists of: stories of calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tools.interop.rest.transacting import Step

_NOTHING: Final = object()
#: Characters of a body that its call's name shows.
_NAME_BODY_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    #: The body as it is sent; None: no body, and no header that speaks of one.
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    #: Whether values of the answer's body are compared, not only its keys and types.
    exact: bool = False
    #: Whether the answer's body is compared at all.
    keys: bool = True
    #: Paths of leaves of the body whose values are compared.
    values: tuple[str, ...] = ()

    def target(self, namespace: str) -> str:
        """What stands in the request line."""
        path = self.path.replace("{ns}", namespace)
        return path if path.startswith("/") else f"/admin/v2/{path}"

    def content(self, namespace: str) -> bytes | None:
        """The body with the story's namespace in it."""
        return None if self.body is None else self.body.replace(b"{ns}", namespace.encode())

    @property
    def text(self) -> str:
        """The request as a text, for names."""
        parts = [self.method, self.path]
        if self.body is not None:
            shown = self.body.decode("utf-8", "backslashreplace")
            parts.append(shown if len(shown) <= _NAME_BODY_CHARACTERS else f"{shown[:80]}... {len(shown)} characters")
        return " ".join([*parts, *(f"{name}={value}" for name, value in self.headers)])


@dataclass(frozen=True, slots=True)
class Until:
    """A call that is made again until it is answered with this status; not compared."""

    path: str
    status: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Messages ``m0``, ``m1``, ... by a client; not compared."""

    topic: str
    count: int = 1
    #: Given to the client's ``create_producer``.
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, init=False)
class Story:
    """Calls one after the other, in a namespace that nothing else uses."""

    name: str
    steps: tuple[Call | Publish | Until | Step, ...]

    def __init__(self, name: str, *steps: Call | Publish | Until | Step) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "steps", steps)

    @property
    def namespace(self) -> str:
        """``public/NAME``; made before the story begins."""
        return f"public/{self.name.replace(' ', '-')}"

    def named_steps(self) -> Iterator[tuple[str, Call | Publish | Until | Step]]:
        """Each step with its name, which is its own within the table."""
        seen: Counter[str] = Counter()
        for step in self.steps:
            if not isinstance(step, Call):
                yield "", step
                continue
            seen[step.text] += 1
            again = f" #{seen[step.text]}" if seen[step.text] > 1 else ""
            yield f"{self.name}: {step.text}{again}", step

    @property
    def calls(self) -> int:
        """How many calls are compared."""
        return sum(isinstance(step, Call) for step in self.steps)


def _call(method: str, path: str, body: object, raw: bytes | None, headers: dict[str, str] | None, exact: bool) -> Call:
    data = raw if body is _NOTHING else json.dumps(body).encode()
    given = headers if headers is not None else ({"Content-Type": "application/json"} if data is not None else {})
    # The usual type of a body is not worth a word in the call's name.
    return Call(method, path, data, tuple(given.items()) if headers is not None else (), exact)


def get(
    path: str,
    *,
    headers: dict[str, str] | None = None,
    exact: bool = False,
    keys: bool = True,
    values: Iterable[str] = (),
) -> Call:
    """GET; ``keys`` False: the body is not compared; ``values``: those of these paths are."""
    return replace(_call("GET", path, _NOTHING, None, headers, exact), keys=keys, values=tuple(values))


def put(path: str, body: object = _NOTHING, *, raw: bytes | None = None, headers: dict[str, str] | None = None) -> Call:
    """PUT; ``body`` as JSON, or ``raw`` as it is."""
    return _call("PUT", path, body, raw, headers, False)


def post(
    path: str,
    body: object = _NOTHING,
    *,
    raw: bytes | None = None,
    headers: dict[str, str] | None = None,
    exact: bool = False,
) -> Call:
    """POST; ``body`` as JSON, or ``raw`` as it is."""
    return _call("POST", path, body, raw, headers, exact)


def delete(
    path: str, body: object = _NOTHING, *, raw: bytes | None = None, headers: dict[str, str] | None = None
) -> Call:
    """DELETE."""
    return _call("DELETE", path, body, raw, headers, False)
