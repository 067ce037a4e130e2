"""How busy this machine is, as Pulsar's brokers measure it on Linux; what the system does not tell is not counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Final

from geminga.broker.load_rules.reports import HostUsage, Usage

#: Where the kernel tells.
ROOT: Final = Path("/")
#: Of a network interface that is an Ethernet one.
_ETHERNET: Final = "1"
_MIB: Final = 1 << 20


class HostMeter:
    """CPU and network over the time since it was measured last; measured at most once in an interval."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        interval_s: Callable[[], float],
        nic_speed_gbps: float | None,
        root: Path = ROOT,
    ) -> None:
        """``interval_s``: as it is now. ``nic_speed_gbps``: of each interface; None: as the machine says.

        ``root``: of ``proc`` and ``sys``.
        """
        self._monotonic = monotonic
        self._interval_s = interval_s
        self._nic_speed_gbps = nic_speed_gbps
        self._root = root
        self._measured_s = monotonic()
        self._cpu = self._cpu_times()
        self._network = self._network_bytes()
        self._usage = HostUsage(memory=self._memory())

    def __call__(self) -> HostUsage:
        """The last measure; a new one if it is older than the interval."""
        now_s = self._monotonic()
        elapsed_s = now_s - self._measured_s
        if elapsed_s >= self._interval_s():
            cpu, network = self._cpu_times(), self._network_bytes()
            limit = self._network_limit()
            received, sent = (
                Usage(max(now - before, 0) * 8 / 1024 / elapsed_s, limit)
                for now, before in zip(network, self._network, strict=True)
            )
            self._usage = HostUsage(self._cpu_usage(cpu), self._memory(), Usage(), received, sent)
            self._cpu, self._network, self._measured_s = cpu, network, now_s
        return self._usage

    def _cpu_usage(self, now: tuple[int, int]) -> Usage:
        limit = 100.0 * (os.cpu_count() or 1)
        busy, total = now[0] - self._cpu[0], now[1] - self._cpu[1]
        return Usage(limit * max(busy, 0) / total if total > 0 else 0.0, limit)

    def _cpu_times(self) -> tuple[int, int]:
        """Ticks in which the host was busy, and all of them."""
        lines = self._text("proc/stat").splitlines()
        words = lines[0].split() if lines else []
        ticks = [int(word) for word in words[1:] if word.isdecimal()]
        # The fourth is idle; waiting for a disk counts as busy, as in Pulsar.
        return (sum(ticks) - ticks[3], sum(ticks)) if len(ticks) > 3 else (0, 0)

    def _memory(self) -> Usage:
        """MiB of this process, of all that there is."""
        pages = self._text("proc/self/statm").split()
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        used = int(pages[1]) * page_bytes / _MIB if len(pages) > 1 else 0.0
        return Usage(used, os.sysconf("SC_PHYS_PAGES") * page_bytes / _MIB)

    def _interfaces(self) -> list[str]:
        """Physical Ethernet ones."""
        directory = self._root / "sys/class/net"
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            return []
        return [
            name
            for name in names
            if "/virtual/" not in os.path.realpath(directory / name)
            and self._text(f"sys/class/net/{name}/type").strip() == _ETHERNET
        ]

    def _network_bytes(self) -> tuple[int, int]:
        """Received and sent."""
        received, sent = (
            sum(self._number(f"sys/class/net/{name}/statistics/{which}_bytes") for name in self._interfaces())
            for which in ("rx", "tx")
        )
        return received, sent

    def _network_limit(self) -> float:
        """kbit/s of all interfaces, each way."""
        if self._nic_speed_gbps:
            return len(self._interfaces()) * self._nic_speed_gbps * 1024 * 1024
        return sum(self._number(f"sys/class/net/{name}/speed") for name in self._interfaces()) * 1024.0

    def _number(self, path: str) -> int:
        text = self._text(path).strip()
        return int(text) if text.isdecimal() else 0

    def _text(self, path: str) -> str:
        try:
            return (self._root / path).read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""


class ProcessMeter:
    """How busy this process is, of the one core that a Python process can use; measured as :class:`HostMeter` does."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        interval_s: Callable[[], float],
        cpu_s: Callable[[], float] = process_time,
    ) -> None:
        """``cpu_s``: of this process since its start."""
        self._monotonic = monotonic
        self._interval_s = interval_s
        self._cpu_s = cpu_s
        self._measured_s = monotonic()
        self._used_s = cpu_s()
        self._usage = HostUsage(cpu=Usage(0.0, 100.0))

    def __call__(self) -> HostUsage:
        """The last measure; a new one if it is older than the interval."""
        now_s = self._monotonic()
        elapsed_s = now_s - self._measured_s
        if elapsed_s >= self._interval_s():
            used_s = self._cpu_s()
            percent = 100.0 * max(used_s - self._used_s, 0.0) / elapsed_s
            self._usage = HostUsage(cpu=Usage(percent, 100.0))
            self._used_s, self._measured_s = used_s, now_s
        return self._usage
