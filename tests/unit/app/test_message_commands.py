"""``geminga messages``: what options say, and what is printed."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from geminga import Standalone
from geminga.app.commands.cli import app_for
from geminga.app.commands.message_commands import filter_of
from geminga.app.handles.core.filters import JsonTest
from geminga.client import blocking
from geminga.model.errors import ConfigurationError
from support.house.terminals import Stream


@pytest.fixture(scope="module")
def broker():
    with Standalone() as running:
        with blocking.connect(running.service_url) as client, client.create_producer("t") as producer:
            for number in range(3):
                producer.send(b'{"n": %d}' % number, partition_key=f"k{number}", properties={"even": str(number % 2)})
        yield running


def _run(broker: Standalone, *words: str):
    return CliRunner().invoke(app_for(words), [*words, "--url", broker.service_url])


def test_options_of_filters() -> None:
    found = filter_of("k", ["a=b"], ["$.x[2].y=true"], "2026-11-28T03:00:00", "1970-01-01T00:00:01+00:00")
    assert (found.key, found.properties, found.until_ms) == ("k", {"a": "b"}, 1000)
    assert found.tests == [JsonTest(("x", 2, "y"), True)]
    assert found.since_ms == 1_795_834_800_000
    assert filter_of(None, None, None, "1970-01-02+02:00", "").since_ms == 79_200_000
    for wrong in (
        (None, ["a"], None, "", ""),
        (None, None, ["x"], "", ""),
        (None, None, ["x[a]=1"], "", ""),
        (None, None, None, "yesterday", ""),
    ):
        with pytest.raises(ConfigurationError, match="expected"):
            filter_of(*wrong)


def test_browse_shows_what_is_wanted(broker) -> None:
    found = _run(broker, "messages", "browse", "t", "--property", "even=0")
    assert [line.partition(" ")[2] for line in found.stdout.splitlines()] == [
        'key=k0 even=0] {"n": 0}',
        'key=k2 even=0] {"n": 2}',
    ]
    found = _run(broker, "messages", "browse", "t", "--where", "n=1", "--json")
    (line,) = [json.loads(text) for text in found.stdout.splitlines()]
    assert (line["key"], line["payload"]) == ("k1", '{"n": 1}')
    first = json.loads(_run(broker, "messages", "browse", "t", "-n", "1", "--json").stdout)
    assert first["payload"] == '{"n": 0}'
    found = _run(broker, "messages", "browse", "t", "--from", first["id"], "-k", "k2", "--json")
    assert json.loads(found.stdout)["payload"] == '{"n": 2}'


@pytest.mark.parametrize(
    "words", [("messages", "browse"), ("client", "read", "-m", "earliest"), ("dead-letters", "list")]
)
def test_a_message_is_shown_at_a_terminal_and_whole_in_a_pipe(words, broker, monkeypatch) -> None:
    """Whoever may publish chooses what is in it: a terminal would obey it."""
    words = list(words)
    hostile, shown = "a\x1b]0;root\x07\x9b2J", "a\\u001b]0;root\\u0007\\u009b2J"
    topic = f"hostile-{words[0]}"
    with blocking.connect(broker.service_url) as client, client.create_producer(topic) as producer:
        producer.send(f"{hostile}\nb".encode(), partition_key=hostile, properties={"p": hostile, "REAL_TOPIC": hostile})
    for is_terminal in (True, False):
        for more in ([], ["--json"]):
            out = Stream(is_terminal=is_terminal)
            monkeypatch.setattr("sys.stdout", out)
            app_for(words)([*words, topic, "--url", broker.service_url, *more], standalone_mode=False)
            text = out.getvalue()
            if more:
                assert "\x9b" not in text or not is_terminal
                found = json.loads(text)
                assert found.get("payload", found.get("content")) == f"{hostile}\nb"
            else:
                told = shown if is_terminal else hostile
                assert text.endswith(f"] {told}\nb\n")
                assert told in text.partition("] ")[0]


def test_export_and_import_tell_how_many(broker, tmp_path) -> None:
    path = str(tmp_path / "file")
    assert _run(broker, "messages", "export", "t", path).stdout == f"3 messages exported to {path}\n"
    told = _run(broker, "messages", "import", "u", path, "--json").stdout
    assert json.loads(told) == {"messages": 3, "resumed": 0}
    assert len(_run(broker, "messages", "browse", "u").stdout.splitlines()) == 3
