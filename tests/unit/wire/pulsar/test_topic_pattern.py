"""Patterns over topic names: what is evaluated here, what is left to the client."""

from __future__ import annotations

import time

import pytest

from geminga.wire.pulsar.topic_pattern import LinearPattern
from support.house.python_programs import run_python

#: Takes a matcher that backtracks minutes for a name of twenty letters.
EVIL = ".+.+.+" + "a?" * 21 + "b"


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("persistent://public/default/a.*", "persistent://public/default/abc", True),
        ("public/default/a.*", "non-persistent://public/default/abc", True),
        ("public/default/a", "persistent://public/default/abc", False),
        ("public/default/abc", "persistent://public/default/abc-partition-3", True),
        ("public/default/abc-partition-03", "persistent://public/default/abc-partition-03", True),
        (r"public/default/\Qa.b\E\d+", "persistent://public/default/a.b7", True),
        (r"public/default/\Qa.b\E", "persistent://public/default/axb", False),
        (r"public/default/(?P<n>x)(?:y|z)?", "persistent://public/default/xz", True),
        (r"public/default/[^a-c]\pL+", "persistent://public/default/größe", True),
        (r"public/default/(a+)+b", "persistent://public/default/" + "a" * 400, False),
    ],
)
def test_patterns_match_names_without_domain_and_partition(pattern: str, topic: str, expected: bool) -> None:
    compiled = LinearPattern.compile(pattern)
    assert compiled is not None
    assert compiled.matches(topic) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "(?!__)a.*",  # Java clients leave out system topics so
        "(?<=a)b",
        r"(a)\1",
        "a++",
        "(?>a)",
        "a\ud800",
        r"(\pL{30}){30}",  # a program of megabytes
        "(.{0,30}){0,30}b",
        # RE2 would take these to mean something else than Java or Python.
        "[[:alpha:]]",
        "[a[bc]]",
        "[a-z&&[^b]]",
        "(?U)a",
        "(?iU:a)",
        "a{,3}",
        r"\012",
        r"\C",
        r"[\v]",
    ],
)
def test_what_is_not_evaluated_here_is_none(pattern: str) -> None:
    assert LinearPattern.compile("public/default/" + pattern) is None


def test_quoted_text_has_its_own_meaning_whatever_is_in_it() -> None:
    compiled = LinearPattern.compile(r"public/default/\Q[[a{,3}(?U\E[]a]\[\{,")
    assert compiled is not None
    assert compiled.matches("persistent://public/default/[[a{,3}(?U][{,")


def test_time_is_linear_in_the_name() -> None:
    compiled = LinearPattern.compile(EVIL)
    assert compiled is not None
    began = time.process_time()
    for count in range(100):
        assert not compiled.matches("persistent://public/default/" + "a" * (400 + count))
    assert time.process_time() - began < 1


def test_re2_is_loaded_with_the_first_pattern() -> None:
    program = (
        "import sys, geminga.broker.composition.service, geminga.wire.pulsar.topic_pattern as t\n"
        "before = 're2' in sys.modules\n"
        "t.LinearPattern.compile('a')\n"
        "print(before, 're2' in sys.modules)"
    )
    done = run_python(program)
    assert done.stdout.split() == ["False", "True"]
