"""Processes that outlive the command that starts them: who they are, how they are started, told and ended.

A process is known by its pid and by when it was started, so that one that got the number of another later is never
taken for it, and never gets its signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from geminga.app.local.core.local_cluster import LocalMember
from geminga.runtime.local_file import private

#: Between two looks at something that tells nothing by itself.
LOOK_S: Final = 0.05
#: A killed process is gone once the kernel has taken it apart.
KILL_S: Final = 10.0
#: What is read of a log for the reason of an end.
LOG_TAIL_BYTES: Final = 16_384
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
#: Waits until who started it has written down that it did; ends if that one is gone.
_GATE: Final = 'umask go= && read -r go && exec "$@" < /dev/null'


def started_at(pid: int) -> str | None:
    """Boot and start time of the process with this pid; None if there is none, or it only waits to be reaped."""
    if not _BOOT_ID.exists():
        return _asked_start(pid)
    try:
        # The command's name stands in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    return f"{_BOOT_ID.read_text(encoding='ascii').strip()}:{fields[19]}"


def _asked_start(pid: int) -> str | None:
    """Where there is no /proc: to the second."""
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    ).stdout.split(maxsplit=1)
    return None if len(answer) < 2 or answer[0].startswith("Z") else answer[1].strip()


@dataclass(slots=True)
class Launched:
    """A process that waits to be told :meth:`go`."""

    process: subprocess.Popen[bytes]
    started: str

    def go(self) -> None:
        """Let it run its program."""
        assert self.process.stdin is not None
        try:
            with self.process.stdin as gate:
                gate.write(b"go\n")
        except OSError:
            pass  # it is gone, which whoever waits for it sees


def launch(
    command: Sequence[str], *, log: Path, ready: Path | None, environment: Mapping[str, str] | None = None
) -> Launched:
    """Start ``command`` in a session of its own; standard output to ``ready``, all else to ``log``. Raises OSError."""
    with (
        open(log, "ab", opener=private) as errors,
        open(ready or log, "wb" if ready else "ab", opener=private) as output,
    ):
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "geminga-cluster", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            env=environment,
        )
    return Launched(process, started_at(process.pid) or "")


def is_there(member: LocalMember) -> bool:
    """Whether the process that was started still runs."""
    return started_at(member.pid) == member.started


def tell(member: LocalMember, number: signal.Signals) -> None:
    """Send a signal if the process is still the one that was started."""
    try:
        if not hasattr(os, "pidfd_open"):
            if is_there(member):
                os.kill(member.pid, number)
            return
        # What the descriptor stands for stays the same, whoever gets the number.
        handle = os.pidfd_open(member.pid)
        try:
            if is_there(member):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
    except ProcessLookupError:
        pass


def end(members: Collection[LocalMember], *, within_s: float) -> list[LocalMember]:
    """SIGTERM to all of them, and SIGKILL to who is there after ``within_s``; those who had to be killed."""
    for member in members:
        tell(member, signal.SIGTERM)
        # One that was paused hears it then.
        tell(member, signal.SIGCONT)
    left = _wait_gone(members, within_s)
    for member in left:
        tell(member, signal.SIGKILL)
    _wait_gone(left, KILL_S)
    return left


def _wait_gone(members: Collection[LocalMember], within_s: float) -> list[LocalMember]:
    deadline = time.monotonic() + within_s
    left = list(members)
    while (left := [member for member in left if is_there(member)]) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return left


def last_paragraph(log: Path, since: int) -> str:
    """What a process of Geminga's said last on why it ended (``geminga: ...``), else its last line.

    From what stands in its ``log`` from byte ``since`` on.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(since, file.tell() - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.removeprefix("geminga: ") for line in lines if line.startswith("geminga: ")]
    return said[-1] if said else next((line.strip() for line in reversed(lines) if line.strip()), "")
