"""docs/security.md, run as it stands: a cluster with TLS, tokens and roles from nothing, and all of it exchanged."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.free_ports import free_ports

from support.house.page_blocks import blocks_of, program_of
from support.house.source_tree import ROOT
from support.processes.killing import kill_named

# Six processes, one of them a JVM; that each block is run is held in tests/tidy.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

#: Of the page. They do not occur in it as anything else.
PORTS = ("6650", "6651", "6652", "8080", "8443", "8444", "2181")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where the page is run; what it left running is ended with the test."""
    yield tmp_path
    command = [sys.executable, "-m", "geminga", "cluster", "down", "--dir", str(tmp_path / "cluster"), "--timeout", "5"]
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    kill_named(tmp_path / "second.pid")


def test_the_page_on_security_runs_as_it_stands(directory: Path) -> None:
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    program = program_of(blocks_of(page), ports)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (directory / "said").open("w+") as output:
        done = subprocess.run(
            ["bash", "-c", program],
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
            timeout=280,
            check=False,
        )
        output.seek(0)
        said = output.read()
    assert done.returncode == 0, said[-4000:]
    assert said.rstrip().endswith("== the end")
    assert "one coffee" in said
    lines = [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]
    assert [(line["role"], line["method"], line["status"]) for line in lines] == [
        ("admin", "PUT", 204),
        ("admin", "PUT", 204),
        ("admin", "POST", 204),
        ("admin", "POST", 204),
    ]
    # What the page hides is in no output and no file of any process: logs, journals, metadata, cluster.json.
    known = [path.read_bytes().strip() for path in [*directory.glob("*.token"), *directory.glob("*.former")]]
    known += [form for path in directory.glob("*.key") for form in forms_of(path.read_bytes())]
    looked_at = [directory / "said", *directory.glob("*.log"), *directory.glob("*.conf")]
    looked_at += [path for path in directory.glob("cluster/**/*") if path.is_file()]
    assert len(looked_at) > 20
    for path in looked_at:
        text = path.read_bytes()
        assert not [secret for secret in known if secret in text], path


def forms_of(key: bytes) -> list[bytes]:
    """A key as bytes, as base64 and as hexadecimal digits; of PEM its first line of base64."""
    if key.startswith(b"-----BEGIN"):
        return [key.splitlines()[1]]
    return [key, base64.b64encode(key), base64.urlsafe_b64encode(key).rstrip(b"="), key.hex().encode()]
