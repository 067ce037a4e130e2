"""podman as this needs it: the settings with which it runs also inside another container, and its Docker API."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.image.files import ROOT

#: In this order: what is called, and Debian's package that has it.
PROGRAMS: Final = {"podman": "podman", "runc": "runc", "iptables": "iptables", "debootstrap": "debootstrap"}
PACKAGES: Final = (
    "podman runc containernetworking-plugins golang-github-containernetworking-plugin-dnsname iptables slirp4netns "
    "debootstrap"
)
#: Hard and soft limits are the same: podman 4's Docker API takes one for the other.
_SETTINGS: Final = """\
[containers]
default_ulimits=["nofile=4096:4096","nproc=2048:2048"]
[engine]
runtime="runc"
[network]
network_backend="cni"
"""
BASE: Final = "localhost/geminga-base"
IMAGE: Final = "localhost/geminga"


def require() -> None:
    """Raise SystemExit with what is missing, by name."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        raise SystemExit(
            f"missing: {', '.join(missing)}. On Debian: apt-get install --no-install-recommends {PACKAGES}"
        )


def environment() -> dict[str, str]:
    """The environment of podman; CONTAINERS_CONF of the caller wins."""
    found = dict(os.environ)
    if "CONTAINERS_CONF" not in found:
        path = ROOT / "build" / "containers.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_SETTINGS, encoding="utf-8")
        found["CONTAINERS_CONF"] = str(path)
    return found


def podman(*words: str | Path, check: bool = True, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
    """Run podman; its output is in the result. Raises SystemExit with its last words where it fails and must not."""
    command = ["podman", *map(str, words)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=timeout_s, cwd=ROOT
    )
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done


@contextlib.contextmanager
def docker_api(directory: Path) -> Iterator[Mapping[str, str]]:
    """Serve Docker's API; the variables by which the testcontainers libraries find it."""
    path = directory / "docker.sock"
    process = subprocess.Popen(
        ["podman", "system", "service", "--time=0", f"unix://{path}"], env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        while not path.exists():
            if process.poll() is not None:
                raise SystemExit(f"podman's Docker API ended with {process.returncode}")
            os.sched_yield()
        yield {
            **environment(),
            "DOCKER_HOST": f"unix://{path}",
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        }
    finally:
        process.terminate()
        process.wait(30)
