"""How busy a machine is, from what its kernel tells."""

from __future__ import annotations

from pathlib import Path

from geminga.app.lifecycle.host_usage import HostMeter, ProcessMeter


def machine(root: Path, *, busy: int, idle: int, received: int, sent: int) -> None:
    for path, text in {
        "proc/stat": f"cpu  {busy} 0 0 {idle} 0 0 0\ncpu0 1 2 3 4\n",
        "proc/self/statm": "100 10 1",
        "sys/class/net/eth0/type": "1\n",
        "sys/class/net/eth0/speed": "1000\n",
        "sys/class/net/eth0/statistics/rx_bytes": f"{received}\n",
        "sys/class/net/eth0/statistics/tx_bytes": f"{sent}\n",
        "sys/class/net/lo/type": "772\n",
        "sys/class/net/lo/statistics/rx_bytes": "999999999\n",
    }.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")


def test_usage_is_what_happened_since_the_last_measure(tmp_path: Path) -> None:
    now = [0.0]
    machine(tmp_path, busy=100, idle=900, received=1000, sent=0)
    meter = HostMeter(lambda: now[0], lambda: 60, None, tmp_path)
    assert meter().cpu.share == 0
    assert meter().memory.usage > 0
    machine(tmp_path, busy=175, idle=925, received=1000 + 1024 * 1000, sent=2048 * 1000)
    now[0] = 59
    assert meter().cpu.share == 0
    now[0] = 100
    usage = meter()
    assert usage.cpu.share == 0.75
    assert (usage.bandwidth_in.usage, usage.bandwidth_out.usage) == (80.0, 160.0)
    assert usage.bandwidth_in.limit == 1000 * 1024


def test_a_speed_that_is_told_counts_for_each_interface(tmp_path: Path) -> None:
    now = [0.0]
    machine(tmp_path, busy=1, idle=1, received=0, sent=0)
    meter = HostMeter(lambda: now[0], lambda: 1, 10.0, tmp_path)
    now[0] = 1
    assert meter().bandwidth_out.limit == 10 * 1024 * 1024


def test_what_the_system_does_not_tell_is_not_counted(tmp_path: Path) -> None:
    now = [0.0]
    meter = HostMeter(lambda: now[0], lambda: 1, None, tmp_path / "nothing")
    now[0] = 2
    assert meter().largest_share() == 0


def test_usage_of_a_process_is_its_part_of_one_core() -> None:
    now, used = [0.0], [3.0]
    meter = ProcessMeter(lambda: now[0], lambda: 60, lambda: used[0])
    assert meter().cpu.share == 0
    now[0], used[0] = 59.0, 50.0
    assert meter().cpu.share == 0
    now[0], used[0] = 60.0, 48.0
    assert meter().cpu.share == 0.75
    assert meter().largest_share() == 0.75
