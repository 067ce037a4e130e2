"""The error tree and Pulsar's ``ServerError`` map onto each other without gaps."""

from __future__ import annotations

import re

from geminga.model import errors
from geminga.model.errors import GemingaError, ServerError
from support.house.source_tree import ROOT

#: Codes that no error class has, and why.
UNUSED: dict[ServerError, str] = {}


def error_classes() -> list[type[GemingaError]]:
    """Every class of the tree, in order of name."""
    return sorted(
        (c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, GemingaError)),
        key=lambda c: c.__name__,
    )


def gaps(classes: list[type[GemingaError]], unused: dict[ServerError, str]) -> list[str]:
    """Codes without class, classes without code, exceptions that are none any more."""
    used = {c.server_error for c in classes}
    found = [f"{code.name} has no error class" for code in ServerError if code not in used and code not in unused]
    found += [f"{code.name} is used, yet listed as unused" for code in unused if code in used]
    found += [f"{c.__name__} has no wire code" for c in classes if not isinstance(c.server_error, ServerError)]
    found += [f"{c.__name__} has no HTTP status" for c in classes if not 400 <= c.http_status < 600]
    return found


def test_error_codes_map_both_ways() -> None:
    assert gaps(error_classes(), UNUSED) == []


def test_missing_and_needless_entries_are_caught() -> None:
    assert gaps([c for c in error_classes() if c.__name__ != "ProducerFencedError"], UNUSED) != []
    assert gaps(error_classes(), {**UNUSED, ServerError.CHECKSUM_ERROR: "never"}) != []


def test_server_error_numbers_are_those_of_the_protocol() -> None:
    from geminga.wire._generated import pulsar_api_pb2 as api

    spelled = {name.upper().replace("_", ""): number for name, number in api.ServerError.items()}
    assert {code.name.replace("_", ""): code.value for code in ServerError} == spelled


def test_every_error_of_the_tree_has_one_of_four_roots() -> None:
    roots = (errors.LocalError, errors.RemoteError, errors.StorageError, errors.UnavailableError)
    assert [c.__name__ for c in error_classes() if c is not GemingaError and not issubclass(c, roots)] == []


def test_an_error_without_a_text_is_told_by_its_class() -> None:
    """``error or type(error).__name__`` never is: an error is true, whatever its text."""
    always_true = re.compile(r"\{(\w+) or type\(\1\)")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for match in always_true.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found, found
    assert always_true.search('f"{error or type(error).__name__}"')
