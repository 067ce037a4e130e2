"""The units of ``deploy/systemd`` under a real systemd, in a container: start by a connection, a loop that stands
still, reload, stop. Debian's systemd is installed on top of the image."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from tools.image.files import ROOT
from tools.image.podman import IMAGE, podman

NAME: Final = "localhost/geminga-systemd"
UNITS: Final = ROOT / "deploy/systemd"
#: systemd's own measure of what a service may do: 0 is nothing, 10 everything.
EXPOSURE_MAX: Final = 2.0
#: Of a step.
WAIT_S: Final = 60.0
_SERVICE: Final = "geminga-standalone.service"
_FILE: Final = f"""\
FROM {IMAGE}
USER 0
RUN apt-get update && apt-get install -y --no-install-recommends systemd && rm -rf /var/lib/apt/lists/*
COPY units/*.service units/*.socket /etc/systemd/system/
COPY units/geminga.sysusers /usr/lib/sysusers.d/geminga.conf
RUN mkdir -p /opt/geminga/bin /etc/geminga /etc/systemd/system/{_SERVICE}.d && \\
    ln -s /pulsar/bin/geminga /opt/geminga/bin/geminga && touch /etc/geminga/standalone.conf && systemd-sysusers && \\
    printf '[Service]\\nWatchdogSec=3\\nTimeoutAbortSec=1\\n' > /etc/systemd/system/{_SERVICE}.d/quick.conf
HEALTHCHECK NONE
CMD ["/lib/systemd/systemd"]
"""


class Systemd:
    """A container with one."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(UNITS, Path(directory, "units"))
            Path(directory, "Dockerfile").write_text(_FILE, encoding="utf-8")
            podman("build", "--format=docker", f"--tag={NAME}", "--file", Path(directory, "Dockerfile"), directory)
        self._container = podman("run", "--detach", "--privileged", "--systemd=always", NAME).stdout.strip()

    def close(self) -> None:
        """Remove it."""
        podman("rm", "--force", "--volumes", "--time=0", self._container, check=False)

    def run(self, *words: str, check: bool = True) -> str:
        """What a command in it prints; raises SystemExit where it fails and must not."""
        done = podman("exec", self._container, *words, check=check)
        return done.stdout + done.stderr

    def until(self, expected: str, *words: str) -> str:
        """Run it until it prints ``expected``, a pattern; raises SystemExit."""
        limit_s = time.monotonic() + WAIT_S
        while time.monotonic() < limit_s:
            said = self.run(*words, check=False)
            if re.search(expected, said):
                return said
        journal = self.run("journalctl", "--no-pager", "--lines=40", check=False)
        raise SystemExit(f"{' '.join(words)}: {said!r}, expected {expected} within {WAIT_S:g} s\n{journal}")

    def value(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", f"--property={name}", "--value", _SERVICE).strip()


def systemd() -> str:
    """Raises SystemExit with what was not as it should be."""
    machine = Systemd()
    try:
        return _tried(machine)
    finally:
        machine.close()


def _tried(machine: Systemd) -> str:
    machine.until("running|degraded", "systemctl", "is-system-running")
    units = sorted(path.name for path in UNITS.iterdir() if path.suffix in (".service", ".socket"))
    faults = machine.run("systemd-analyze", "verify", *[f"/etc/systemd/system/{unit}" for unit in units]).strip()
    if faults:
        raise SystemExit(f"systemd-analyze verify: {faults}")
    exposures = {unit: _exposure(machine, unit) for unit in units if unit.endswith(".service")}
    if max(exposures.values()) > EXPOSURE_MAX:
        raise SystemExit(f"systemd-analyze security: {exposures}, at most {EXPOSURE_MAX}")

    machine.run("systemctl", "start", "geminga-standalone.socket")
    if machine.value("ActiveState") != "inactive":
        raise SystemExit("the service was started before anybody connected")
    client = ("/opt/geminga/bin/geminga", "client")
    machine.run(*client, "produce", "t", "-m", "hello")
    machine.until("^active$", "systemctl", "is-active", _SERVICE)
    if "Geminga" not in machine.value("StatusText"):
        raise SystemExit(f"systemctl status says {machine.value('StatusText')!r}")

    process = machine.value("MainPID")
    machine.run("/bin/sh", "-c", f"kill -STOP {process}")
    begun = time.monotonic()
    machine.until("^1$", "systemctl", "show", "--property=NRestarts", "--value", _SERVICE)
    again_s = time.monotonic() - begun
    machine.until("^active$", "systemctl", "is-active", _SERVICE)
    said = machine.run(*client, "consume", "t", "-s", "s", "-p", "Earliest")
    if "hello" not in said:
        raise SystemExit(f"after the restart the message is not there: {said}")

    process = machine.value("MainPID")
    machine.run("systemctl", "reload", _SERVICE)
    machine.run("systemctl", "stop", "geminga-standalone.socket", _SERVICE)
    if (machine.value("Result"), machine.value("ExecMainStatus")) != ("success", "0"):
        raise SystemExit(f"stopped as {machine.value('Result')}, {machine.value('ExecMainStatus')}")
    journal = machine.run("journalctl", "--no-pager", f"_PID={process}")
    if "SIGHUP: there is no file to look at again" not in journal:
        raise SystemExit(f"a reload did not come to the process: {journal[-2000:]}")
    return (
        f"{len(units)} units, exposure {min(exposures.values())} to {max(exposures.values())}; started by a "
        f"connection; a loop that stood still was ended and started again after {again_s:.1f} s (WatchdogSec=3)"
    )


def _exposure(machine: Systemd, unit: str) -> float:
    said = machine.run("systemd-analyze", "security", "--no-pager", unit)
    found = re.search(r"exposure level for .*: ([0-9.]+)", said)
    if found is None:
        raise SystemExit(f"systemd-analyze security {unit}: {said[-500:]}")
    return float(found[1])
