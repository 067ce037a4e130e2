"""``geminga client`` and ``geminga perf`` as commands, against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tools.standalone_process import ROOT

from support.house.weekly_sample import sampled


def command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        [sys.executable, "-m", "geminga", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.fixture
def url(standalone) -> list[str]:
    """Where the broker is."""
    return ["--url", standalone.service_url]


def test_what_is_produced_is_consumed_and_read(url, fresh_topic) -> None:
    sent = command("client", "produce", fresh_topic, "-m", "one", "-m", "two", "-k", "k", "-p", "a=b", *url)
    assert (sent.returncode, sent.stdout) == (0, "2 messages sent\n"), sent.stderr
    read = command("client", "read", fresh_topic, "-m", "earliest", "--until-end", "-n", "0", "--json", *url)
    lines = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(line["content"], line["key"], line["properties"]) for line in lines] == [
        ("one", "k", {"a": "b"}),
        ("two", "k", {"a": "b"}),
    ]
    news = command("client", "read", fresh_topic, "--until-end", "-n", "0", "--json", *url)
    assert (news.returncode, news.stdout) == (0, ""), "from latest on there is nothing yet"
    got = command("client", "consume", fresh_topic, "-s", "s", "-p", "Earliest", "-n", "2", *url)
    assert [line.partition("] ")[2] for line in got.stdout.splitlines()] == ["one", "two"]
    assert got.stderr == "2 messages\n"


def test_lines_of_standard_input_are_messages(url, fresh_topic, official) -> None:
    consumer = official.subscribe(fresh_topic, "s")
    sent = command("client", "produce", fresh_topic, "--stdin", "--json", *url, stdin="a\nb\n")
    assert json.loads(sent.stdout) == {"sent": 2}
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"a", b"b"]


def test_perf_counts_what_went_through(url, fresh_topic) -> None:
    waiting = command("client", "consume", fresh_topic, "-s", "perf", "-n", "1", "-t", "Nonsense", *url)
    assert waiting.returncode == 1
    produced = command("perf", "produce", fresh_topic, "-r", "0", "-m", "5000", "-s", "10", "--json", *url)
    total = json.loads(produced.stdout.splitlines()[-1])
    assert (produced.returncode, total["messages"], total["failed"]) == (0, 5000, 0), produced.stderr
    assert 0 < total["latencyMs"]["p50"] <= total["latencyMs"]["p99"] <= total["latencyMs"]["max"]
    consumed = command("perf", "consume", fresh_topic, "-sp", "Earliest", "-m", "5000", *url)
    assert consumed.returncode == 0, consumed.stderr
    assert consumed.stdout.splitlines()[-1].startswith("total: 5,000 received")


def test_interruption_is_a_clean_end(url, fresh_topic, interruptible) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "geminga", "perf", "produce", fresh_topic, "-i", "0.1", *url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "sent in" in first
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1].startswith("total: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    sampled(
        "mistakes at the client's commands",
        [
            (["client", "produce", "t"], "nothing to send"),
            (["client", "produce", "t", "-m", "x", "-p", "novalue"], "expected KEY=VALUE"),
            (["client", "consume", "t", "-s", "s", "-t", "Odd"], "expected one of Exclusive, Shared"),
            (["client", "read", "t", "-m", "12"], "LEDGER:ENTRY"),
            (["client", "read", "t", "--url", "ftp://x"], "pulsar://"),
        ],
        2,
        are_rows=True,
    ),
)
def test_mistake_is_one_paragraph(url, arguments, said) -> None:
    done = command(*arguments, *([] if "--url" in arguments else url))
    assert done.returncode == 1
    paragraph = " ".join(line for line in done.stderr.splitlines() if not line.endswith(" messages"))
    assert paragraph.startswith("geminga: ")
    assert said in paragraph
    assert "Traceback" not in done.stderr


def test_server_command_does_not_load_the_client() -> None:
    program = (
        "import sys, geminga.app.commands.cli, geminga.app.servers.process\n"
        "print([name for name in sys.modules if name.startswith('geminga.client')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout.strip() == "[]"
