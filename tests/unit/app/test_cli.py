"""The command line: arguments, errors, the ready line, what is imported when."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import geminga
import geminga.__main__ as command
from geminga.__main__ import escape_what_is_not_encoded
from geminga.app.commands.cli import _ADMINISTRATION, _GROUPS, app_for, help_of
from geminga.app.commands.client_commands import contents
from geminga.app.configuration.core.log_options import LOG_LEVELS, LogOptions
from geminga.app.lifecycle.log_lines import begin_log
from geminga.app.lifecycle.process_life import seconds_since_exec
from geminga.app.servers.listeners import Addresses
from geminga.app.servers.process import DataLocation, ready_line
from geminga.model.errors import ConfigurationError
from geminga.wire.pulsar import varint
from support.house.python_programs import run_python
from support.house.weekly_sample import sampled

ADDRESSES = Addresses("pulsar://127.0.0.1:1", "http://127.0.0.1:2", 1, 2)


def run(*arguments: str | bytes, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geminga", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def test_version_is_printed() -> None:
    result = run("--version")
    kind = "compiled" if varint.__file__.endswith(".so") else "pure Python"
    assert (result.returncode, result.stdout) == (0, f"geminga {geminga.__version__} ({kind})\n")


def test_version_loads_no_broker() -> None:
    code = (
        "import sys, geminga.__main__ as command\n"
        "sys.argv = ['geminga', '--version']\n"
        "try: command.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('google.protobuf', 'asyncio', 'typer', 'uvicorn') if name in sys.modules])\n"
    )
    result = run_python(code)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("group", sampled("groups of commands", [*_GROUPS, "standalone"], 2))
def test_help_of_one_group_loads_no_other_and_nothing_heavy(group: str) -> None:
    code = (
        "import sys, geminga.__main__ as command\n"
        f"sys.argv = ['geminga', {group!r}, '--help']\n"
        "try: command.main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules))\n"
    )
    result = run_python(code)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert "Usage: geminga" in result.stdout
    assert not loaded & {
        "google.protobuf",
        "asyncio",
        "starlette",
        "uvicorn",
        "pyspark",
        "pyarrow",
        "kazoo",
        "pydantic",
    }
    # Some use options of others: of clients, for one.
    others = {f"geminga.app.{module}" for name, module in _GROUPS.items() if name != group}
    assert len(loaded & others) <= 1
    assert len([name for name in loaded if name.startswith("geminga")]) < 24


@pytest.mark.parametrize("group", sampled("groups whose help is Typer's", [*_GROUPS, "standalone", ""], 2))
def test_help_is_what_typer_says(group: str) -> None:
    names = [group] if group else []
    app = app_for(names)
    command: Any = typer.main.get_command(app)
    below = command.commands[group] if group else command
    asked = [names, *([*names, name] for name in getattr(below, "commands", {}) if name not in _ADMINISTRATION)]
    assert len(asked) > (group != "standalone")
    for words in asked:
        said = CliRunner().invoke(app, [*words, "--help"], prog_name="geminga")
        with CliRunner().isolation():  # as wide
            found = help_of(app, [*words, "--help"])
        assert found == said.stdout.rstrip("\n"), words
    for words in ([], ["-x"], ["--help", "messages"], ["nothing", "--help"], ["admin", "--help"], ["--json", "--help"]):
        assert help_of(app, words) == "", words


def test_every_group_is_in_the_whole_help_and_a_wrong_word_is_told() -> None:
    whole = run("--help")
    assert whole.returncode == 0
    for name in (*_GROUPS, "broker", "standalone", "initialize-cluster-metadata"):
        assert f"  {name} " in whole.stdout, name
    wrong = run("standalon")
    assert wrong.returncode == 2
    assert "No such command 'standalon'" in wrong.stderr


def test_package_and_plugin_load_nothing_heavy() -> None:
    code = (
        "import sys, geminga, geminga.pytest_plugin\n"
        "print([name for name in ('google.protobuf', 'starlette', 'uvicorn', 'typer') if name in sys.modules])\n"
    )
    result = run_python(code)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments", sampled("bad arguments", [["standalone", "--data"], ["fly"], ["standalone", "--nope"]], 2)
)
def test_bad_arguments_end_with_code_two(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    sampled(
        "errors of the command line",
        [
            (["--set", "maxMessageSize=much"], "maxMessageSize=much (--set): expected bytes > 0"),
            (["--set", "novalue"], "expected key=value"),
            (["--broker-port", "70000"], "brokerServicePort=70000"),
            (["--config", "/nowhere/broker.conf"], "No such file"),
            (["--log-level", "loud"], "--log-level loud"),
            (
                ["--set", "bindAddresses=a:pulsar+ssl://127.0.0.1:0", "--broker-port", "0", "--web-port", "0"],
                "tlsCertificateFilePath is not set",
            ),
        ],
        2,
        are_rows=True,
    ),
)
def test_error_is_one_readable_paragraph(tmp_path, arguments: list[str], expected: str) -> None:
    result = run("standalone", "--data", str(tmp_path / "d"), *arguments)
    assert result.returncode == 1
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_sentences_are_one_line_where_nobody_looks_at_a_terminal() -> None:
    result = run("standalone", "--config", "/nowhere/" + "a-long-name/" * 20 + "broker.conf", "--broker-port", "0")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert len(line) > 250


def test_sentences_are_wrapped_on_a_terminal() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "geminga", "standalone", "--data", "d", "--set", "maxMessageSize=" + "much " * 40]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        text = b""
        try:
            while data := os.read(ours, 4096):
                text += data
        except OSError:  # as Linux ends a terminal
            pass
    os.close(ours)
    assert process.returncode == 1
    lines = text.decode().splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 100


def test_environment_is_read(tmp_path) -> None:
    result = run("standalone", "--data", str(tmp_path / "d"), env={**os.environ, "GEMINGA_maxMessageSize": "x"})
    assert "environment variable GEMINGA_maxMessageSize" in " ".join(result.stderr.split())


def test_ready_line_says_where_and_how_fast() -> None:
    line = ready_line(ADDRESSES, DataLocation("dataDir", "/data", "data in"), json_line=False)
    assert "pulsar://127.0.0.1:1" in line
    assert "http://127.0.0.1:2" in line
    assert "\n" not in line
    document = json.loads(ready_line(ADDRESSES, DataLocation("dataDir", "/data", "data in"), json_line=True))
    assert set(document) == {"brokerServiceUrl", "webServiceUrl", "startupSeconds", "pid", "dataDir", "version"}
    assert document["startupSeconds"] > 0


def test_seconds_since_exec_grows() -> None:
    first = seconds_since_exec()
    assert 0 < first <= seconds_since_exec()


def test_unknown_log_level_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=", ".join(LOG_LEVELS)):
        begin_log(LogOptions("loud"))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_can_not_show_stays_json(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    escape_what_is_not_encoded()
    document = {"größe": "→ \U0001f600", "half": "\ud800"}
    print(json.dumps(document, ensure_ascii=False), flush=True)
    assert json.loads(written.getvalue().decode(encoding)) == document


def closed(number: int, words: str) -> subprocess.CompletedProcess[str]:
    """The command with one of its standard streams closed, as some schedulers start it."""
    shell = f'"$0" -m geminga {words} {number}{"<" if number == 0 else ">"}&-'
    return subprocess.run(["sh", "-c", shell, sys.executable], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_standard_stream_that_is_closed_is_the_null_device(number: int) -> None:
    """The event loop ended the process by an assertion when it got the number of one: exit code 134."""
    result = closed(number, "client read t --url nowhere")
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == (0 if number == 2 else 1)


def test_an_interruption_while_the_command_is_loaded_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("geminga.app.commands.cli.app_for", interrupted)
    monkeypatch.setattr(sys, "argv", ["geminga", "inspect"])
    with pytest.raises(SystemExit, match="130"):
        command.main()


def test_an_answer_that_nobody_reads_or_nothing_takes_shows_no_traceback() -> None:
    words_given = [sys.executable, "-m", "geminga", "inspect", "--help"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(words_given, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (1, "geminga: [Errno 28] No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(words_given, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["client", "produce", "t", "-m", "x", "-p", b"k=bad\xff", "--url", "pulsar://127.0.0.1:1"], 1),
        (["doctor", b"bad\xff"], 1),
        (["lake", "status", b"bad\xff"], 1),
        (["admin", "topics", "stats", b"bad\xff"], 2),
        (["admin", "topics", "create-subscription", "t", "-s", b"bad\xff"], 2),
    ],
)
def test_an_argument_that_is_no_text_is_a_sentence(
    words: list[str | bytes], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback, or what Python says of its codec."""
    monkeypatch.setattr(sys, "argv", ["geminga", *map(os.fsdecode, words)])
    monkeypatch.setenv("GEMINGA_ADMIN_URL", "http://127.0.0.1:1")
    with pytest.raises(SystemExit) as ended:
        command.main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (code, "")
    assert shown.err.endswith("bad\\xff': expected text in UTF-8\n")
    assert len(shown.err.splitlines()) == 1


def test_a_file_that_is_not_there_is_told_without_a_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["geminga", "loadbalance", "simulate", "/nowhere/trace"])
    with pytest.raises(SystemExit, match="1"):
        command.main()
    assert capsys.readouterr().err == "geminga: /nowhere/trace: No such file or directory\n"


def test_contents_of_the_command_line_are_the_bytes_that_were_given(tmp_path: Any) -> None:
    given = [os.fsdecode(b"\xff\x00\xc3\xbc"), "\u2192"]
    assert list(contents(given, (), 2)) == [b"\xff\x00\xc3\xbc", "\u2192".encode()] * 2
    with pytest.raises(ConfigurationError, match=r"^--files .*/none: No such file or directory$"):
        list(contents((), [f"{tmp_path}/none"], 1))
