"""Options by a table."""

from __future__ import annotations

import pytest

from geminga.app.container.core.options import options, read_options
from geminga.model.errors import ConfigurationError

TABLE = {**options("a: -a --all\n: -i"), **options("f: -f\n: -n", takes_value=False)}


def test_options_values_words_and_what_has_no_effect() -> None:
    given = read_options("p", ["-a", "1", "x", "--all=2=3", "-f", "-i", "v", "-n", "-"], TABLE)
    assert given.values == {"a": ("1", "2=3"), "f": ("true",)}
    assert given.rest == ("x", "-")
    assert given.idle == ("-i", "-n")
    assert (given.last("a"), given.last("b", "other"), given.has("f")) == ("2=3", "other", True)


def test_what_follows_the_first_word_may_be_left_alone() -> None:
    assert read_options("p", ["-f", "word", "-z"], TABLE, ends_at_word=True).rest == ("word", "-z")
    with pytest.raises(ConfigurationError, match="p: unknown option -z; expected one of --all, -a"):
        read_options("p", ["word", "-z"], TABLE)
    with pytest.raises(ConfigurationError, match="p: -a without its value"):
        read_options("p", ["-a"], TABLE)
