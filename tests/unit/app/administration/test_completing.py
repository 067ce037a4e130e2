"""Completion: words that fit, names that a broker tells, and the scripts in the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest

from geminga.app.administration.completing import SCRIPTS, fitting
from support.processes.web_answers import Answering, Served

_ANSWERS: Final = {
    "/admin/v2/tenants": b'["public","pulsar"]',
    "/admin/v2/namespaces/public": b'["public/default"]',
    "/admin/v2/persistent/public/default": b'["persistent://public/default/orders"]',
    "/admin/v2/non-persistent/public/default": b"[]",
}


class _Handler(Answering):
    def do_GET(self) -> None:
        found = _ANSWERS.get(self.path)
        self.answer(found or b"", status=404 if found is None else 200)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Served(ThreadingHTTPServer(("127.0.0.1", 0), _Handler)) as server:
        monkeypatch.setenv("GEMINGA_ADMIN_URL", server.url)
        yield server.url


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("geminga ad", ["admin"]),
        ("geminga b", ["backlog", "backup", "bookie", "broker"]),
        ("geminga c", ["client", "cluster", "completion", "context"]),
        ("geminga admin top", ["topicPolicies", "topics"]),
        ("geminga admin --json top", ["topicPolicies", "topics"]),
        ("geminga admin topics set-ret", ["set-retention"]),
        ("geminga pulsar-admin topics stats --get-p", ["--get-precise-backlog"]),
        ("geminga admin namespaces split-bundle a/b -bt ", ["HOT", "LARGEST"]),
        ("geminga admin -o ", []),
        ("geminga completion ", ["bash", "fish", "zsh"]),
        ("geminga context s", ["set", "show"]),
        ("geminga context set dev --admin", ["--admin-url"]),
        ("geminga admin nothing here ", []),
        ("geminga admin tenants get p", ["public", "pulsar"]),
        ("geminga admin namespaces policies ", ["public/", "pulsar/"]),
        ("geminga admin namespaces policies public/", ["public/default"]),
        ("geminga admin topics stats public/d", ["public/default/"]),
        ("geminga admin topics stats public/default/", ["public/default/orders"]),
        ("geminga admin topics stats persistent://public/default/o", ["persistent://public/default/orders"]),
        ("geminga admin transactions transaction-buffer-stats -t persistent://pub", ["persistent://public/"]),
    ],
)
def test_words_that_fit(broker: str, line: str, words: list[str]) -> None:
    assert fitting(line) == words


def test_without_a_broker_there_are_no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GEMINGA_ADMIN_URL", "http://127.0.0.1:1")
    assert fitting("geminga admin tenants get ") == []


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``geminga`` is found."""
    script = tmp_path / "bin" / "geminga"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m geminga "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")


def shell(*words: str) -> str:
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("geminga admin topics set-ret", "set-retention"),
        # What is before the colon stays out: bash has it already.
        ("geminga admin topics stats persistent://public/default/o", "//public/default/orders"),
    ],
)
def test_bash_completes(broker: str, program: None, line: str, found: str) -> None:
    ask = 'source <(geminga completion bash); COMP_LINE=$1 COMP_POINT=${#1}; _geminga; echo "${COMPREPLY[*]}"'
    assert shell("bash", "-c", ask, "bash", line).split() == [found]


def test_zsh_completes(broker: str, program: None) -> None:
    ask = (
        "compdef() { :; }; compadd() { shift; print -l -- ${(P)1}; }; source <(geminga completion zsh); "
        "words=(geminga admin topics set-ret); CURRENT=4; _geminga"
    )
    assert shell("zsh", "-fc", ask).split() == ["set-retention"]


def test_fish_completes(broker: str, program: None) -> None:
    ask = "geminga completion fish | source; complete -C 'geminga admin topics set-ret'"
    assert shell("fish", "--no-config", "-c", ask).split() == ["set-retention"]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_scripts_are_of_their_shell(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(SCRIPTS[name], encoding="utf-8")
    shell(name, "-n", str(script))
