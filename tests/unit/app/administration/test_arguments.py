"""Words become values, or an error that says what was expected."""

from __future__ import annotations

import pytest

from geminga.app.administration.arguments import UsageError, given, leading
from geminga.app.administration.command import Command, option_of, parsed
from geminga.app.administration.groups import commands_of
from geminga.app.administration.units import WrongWordError, value_of


def command(words: str) -> Command:
    group, _, name = words.partition(" ")
    return commands_of(group)[name]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("seconds", "10m", 600),
        ("seconds", "-1", -1),
        ("millis", "2s", 2000),
        ("minutes", "3h", 180),
        ("minutes", "-1", -1),
        ("bytes", "10M", 10 << 20),
        ("bytes", "2t", 2 << 40),
        ("megabytes", "1G", 1024),
        ("megabytes", "-1", -1),
        ("datetime", "2020-01-02T03:04:05.000Z", 1_577_934_245_000),
        ("list", "a, b,", ["a", "b"]),
        ("position", "5:1", {"ledgerId": 5, "entryId": 1, "partitionIndex": -1}),
        ("position", "earliest", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}),
        ("commaMap", "a=b,c=d", {"a": "b", "c": "d"}),
    ],
)
def test_words_are_values_by_their_kind(kind: str, text: str, value: object) -> None:
    assert value_of(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("seconds", "10x", "'10x' is no time such as 10s"),
        ("bytes", "1.5G", "'1.5G' is no size such as 4096"),
        ("megabytes", "10K", "'10K' is less than 1M"),
        ("minutes", "30s", "'30s' is less than a minute"),
        ("int", "ten", "'ten' is no whole number"),
        ("float", "nan", "'nan' is no number"),
        ("float", "-inf", "'-inf' is no number"),
        ("float", "x", "'x' is no number"),
        ("position", "5", "'5' is no place of a message: LEDGER:ENTRY"),
        ("datetime", "2020-01-02T03:04:05", "is no time with its zone"),
        ("map", "a", "'a' is no KEY=VALUE"),
        ("LARGEST/HOT", "COLD", "'COLD' is none of LARGEST, HOT"),
    ],
)
def test_what_is_no_value_is_told_with_what_is(kind: str, text: str, said: str) -> None:
    with pytest.raises(WrongWordError, match=said):
        value_of(kind, text)


def test_options_may_stand_anywhere_and_be_said_again() -> None:
    said = given(
        command("topics create-partitioned-topic"), ["-m", "a=b", "t", "--json", "--metadata=c=d", "-p", "3"], {}
    )
    assert (said.places, said["partitions"], said["properties"]) == ({"topic": "t"}, 3, {"a": "b", "c": "d"})
    assert said.common == {"json": True}


def test_what_a_command_takes_itself_is_not_for_all_commands() -> None:
    said = given(command("schemas extract"), ["t", "--dry-run"], {})
    assert (said["dry"], dict(said.common)) == (True, {})


def test_words_behind_two_dashes_are_no_options() -> None:
    assert given(command("topics stats"), ["--", "--help"], {}).places == {"topic": "--help"}


@pytest.mark.parametrize(
    ("words", "rest", "said"),
    [
        ("topics stats", [], "TOPIC is missing"),
        ("topics stats", ["t", "u"], "there is nothing for 'u' to be"),
        ("topics stats", ["t", "--get-precise-backlo"], "is it --get-precise-backlog?"),
        ("topics skip", ["t", "-s", "s"], "--count must be given"),
        ("topics skip", ["t", "-s"], "-s needs a value"),
        ("topics stats", ["t", "--metadata=1", "-gpb"], "there is no option --metadata"),
        ("topics stats-internal", ["t", "--metadata=1"], "--metadata takes no value"),
        ("topics set-deduplication", ["t"], "exactly one of --enable, --disable must be given"),
        ("topics set-deduplication", ["t", "-e", "-d"], "exactly one of --enable, --disable must be given"),
        ("namespaces set-offload-threshold", ["a/b"], "at least one of --size, --time must be given"),
        ("namespaces set-retention", ["a/b", "-t", "3x", "-s", "1G"], "-t: '3x' is no time such as"),
        ("schemas upload", ["t", "-f", "/nowhere"], "-f: /nowhere: No such file"),
    ],
)
def test_wrong_words_are_told(words: str, rest: list[str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        given(command(words), rest, {})
    assert said in str(error.value)


def test_options_for_all_stand_before_a_group() -> None:
    common, rest = leading(["--admin-url", "http://a:1", "-o", "json", "topics", "list"])
    assert (common, rest) == ({"admin_url": "http://a:1", "output": "json"}, ["topics", "list"])


def test_rows_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="no option"):
        option_of("?force -f")
    one = next(parsed("g", "name POST a/{b}/{c?} !%; /b:text! -b;\n ?d:int=3 --dd -d\n"))
    assert (one.places, one.destroys, one.is_by_partition, one.options[1].default) == (("c?",), True, True, "3")
