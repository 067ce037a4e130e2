"""``pulsar-admin`` itself, the official command line, at brokers of either make: one process for many commands."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tools.interop.apache_standalone import die_with_parent
from tools.interop.artifacts import HERE, admin_class_path, java

SOURCE: Final = HERE / "AdminCommands.java"


class Printed(NamedTuple):
    """What a command said."""

    is_done: bool
    out: str
    errors: str


class PulsarAdmin:
    """Made by :func:`pulsar_admin`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, url: str, *words: str) -> Printed:
        """One command at the broker whose REST is at ``url``."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        assert not any("\t" in word or "\n" in word for word in words)
        stdin.write("\t".join([url, *words]) + "\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("> "):
                _, is_done, out, errors = line.split()
                return Printed(is_done == "true", _text(out), _text(errors))
        raise AssertionError(f"pulsar-admin ended at {words}")


def _text(word: str) -> str:
    return base64.b64decode(word[1:]).decode()


@contextmanager
def pulsar_admin(directory: Path) -> Iterator[PulsarAdmin]:
    """Its complaints go to a file."""
    logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
    program = [java(), "-Xmx256m", "-XX:+UseSerialGC", logging, "-cp", admin_class_path(), str(SOURCE)]
    with (
        (directory / "pulsar-admin.log").open("w") as log,
        subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=die_with_parent,
        ) as process,
    ):
        try:
            yield PulsarAdmin(process)
        finally:
            process.kill()
