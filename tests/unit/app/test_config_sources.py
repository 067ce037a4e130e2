"""Readers of properties files, TOML, environment and command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import geminga
from geminga.app.configuration.config_sources import (
    FILE_BYTES_MAX,
    from_assignment,
    from_environment,
    from_mapping,
    read_file,
)
from geminga.model.errors import ConfigurationError

VARIABLE = re.compile(r"\bGEMINGA_[A-Z][A-Z_]*[A-Z]\b")


def pairs(path) -> dict[str, str]:
    return {entry.key: entry.text for entry in read_file(str(path))}


def test_properties_are_read_as_java_reads_them(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# a comment\n! another\n\n"
        "plain=1\n spaced = two words \ncolon: 3\nblank 4\nempty=\nbare\n"
        "url=http://host:80/?a=b\nlong=a,\\\n    b,\\\n  c\nescaped\\=key=v\\u0041l\\tx\n"
    )
    assert pairs(path) == {
        "plain": "1",
        "spaced": "two words",
        "colon": "3",
        "blank": "4",
        "empty": "",
        "bare": "",
        "url": "http://host:80/?a=b",
        "long": "a,b,c",
        "escaped=key": "vAl\tx",
    }


def test_a_line_ends_where_java_ends_it(tmp_path) -> None:
    """Python ends lines at more characters: what is behind one in a comment or a value would be a key of its own."""
    path = tmp_path / "broker.conf"
    odd = "\x0b\x1c\x1d\x1e\x85\u2028\u2029"
    path.write_text(f"# off:{odd.join(['', 'a=1', 'b=2'])}\nkey=x{odd}y\nform=x\ffeed\r\nlast=1\rmore=2\n", newline="")
    assert pairs(path) == {"key": f"x{odd}y", "form": "x\ffeed", "last": "1", "more": "2"}


def test_two_escapes_are_one_character_where_they_are_in_java(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=\\uD83D\\uDE00!\n")
    assert pairs(path) == {"a": "\U0001f600!"}


@pytest.mark.parametrize("half", ["\\uD83D", "\\uDE00\\uD83D", "\\u+12f", "\\u 12f"])
def test_half_a_character_is_refused_by_its_line(tmp_path, half: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"# a comment\na=x{half}y\n")
    with pytest.raises(ConfigurationError, match=r"broker.conf, line 2: \\u"):
        read_file(str(path))


def test_properties_entry_says_where_it_stands(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("\n\na=1\\\n2\nb=2\n")
    assert [entry.source for entry in read_file(str(path))] == [f"{path}, line 3", f"{path}, line 5"]


def test_continuation_at_the_end_of_the_file_is_not_lost(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1,\\")
    assert pairs(path) == {"a": "1,"}


def test_bad_unicode_escape_names_the_line(tmp_path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=\\u00zz\n")
    with pytest.raises(ConfigurationError, match="line 1"):
        read_file(str(path))


def test_toml_values_become_text_and_tables_only_group(tmp_path) -> None:
    path = tmp_path / "geminga.toml"
    path.write_text('a = 1\nb = true\nc = 0.5\nd = "x"\ne = ["p", "q"]\n[broker]\nf = false\n[broker.more]\ng = 2\n')
    assert pairs(path) == {"a": "1", "b": "true", "c": "0.5", "d": "x", "e": "p,q", "f": "false", "g": "2"}


@pytest.mark.parametrize("text", ["a = ", "a = 1979-05-27"])
def test_toml_that_can_not_be_used_is_an_error(tmp_path, text: str) -> None:
    path = tmp_path / "geminga.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"geminga\.toml"):
        read_file(str(path))


def test_file_that_can_not_be_read_is_a_sentence(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_file(str(tmp_path / "missing.conf"))
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        read_file(str(binary))
    large = tmp_path / "large.conf"
    large.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigurationError, match="larger"):
        read_file(str(large))


def test_environment_gives_what_has_the_prefix() -> None:
    entries = from_environment(
        {"GEMINGA_b": "2", "GEMINGA_a": "1", "OTHER": "x", "GEMINGA_": "y", "GEMINGA_SPARK_JAVA_HOME": "/j"}
    )
    assert [(entry.key, entry.text) for entry in entries] == [("a", "1"), ("b", "2")]
    assert entries[0].source == "environment variable GEMINGA_a"


def test_variables_of_the_command_line_are_no_keys_of_a_server() -> None:
    """All that the product names, with a key of a server in between, of which each has a small letter."""
    product = Path(geminga.__file__).parent
    named = {name for path in product.rglob("*.py") for name in VARIABLE.findall(path.read_text())}
    assert {"GEMINGA_ADMIN_URL", "GEMINGA_AUTH_PARAMS", "GEMINGA_CONTEXT", "GEMINGA_TOKEN"} <= named
    entries = from_environment(dict.fromkeys([*named, "GEMINGA_clusterName", "GEMINGA_ADMIN_URLS"], "x"))
    assert [entry.key for entry in entries] == ["ADMIN_URLS", "clusterName"]


def test_assignment_splits_at_the_first_equals_sign() -> None:
    entry = from_assignment("advertisedListeners=a:pulsar://h:1?x=y")
    assert (entry.key, entry.text) == ("advertisedListeners", "a:pulsar://h:1?x=y")


@pytest.mark.parametrize("text", ["novalue", "=1", ""])
def test_assignment_without_key_or_value_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="key=value"):
        from_assignment(text)


def test_mapping_takes_python_values() -> None:
    entries = from_mapping({"a": 1, "b": True, "c": None, "d": ("x", "y")}, "config")
    assert [entry.text for entry in entries] == ["1", "true", "", "x,y"]
    with pytest.raises(ConfigurationError, match="a \\(config\\)"):
        from_mapping({"a": object()}, "config")
