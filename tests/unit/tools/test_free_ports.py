"""Ports that are looked out before a server has them: nobody else is given them meanwhile."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

from tools.free_ports import HOST, beyond_the_kernels, free_ports

from support.house.source_tree import ROOT


def kernels(count: int) -> list[int]:
    """Ports that the kernel chose."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in taken]


def test_none_is_one_of_those_that_the_kernel_gives_out() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert set(ports) <= set(beyond_the_kernels())
    assert not set(kernels(200)) & set(beyond_the_kernels())
    for port in ports:
        socket.create_server((HOST, port)).close()


def test_none_is_given_to_two_while_the_first_one_lives() -> None:
    ports = free_ports(20)
    assert not set(ports) & set(free_ports(20))
    code = (
        "import os, sys; os.getpid = lambda: int(sys.argv[1]);"
        "from tools.free_ports import free_ports; print(*free_ports(20))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(os.getpid())], cwd=ROOT, capture_output=True, text=True, check=True
    )
    others = [int(word) for word in said.stdout.split()]
    assert len(others) == 20
    assert not set(ports) & set(others)
    # They ended: theirs may be had again.
    assert set(others) & set(free_ports(40))


def test_a_row_has_no_hole_though_somebody_listens_in_it() -> None:
    (first,) = free_ports(1)
    with socket.create_server((HOST, first + 3)):
        row = free_ports(6, in_a_row=True)
    assert row == list(range(row[0], row[0] + 6))
    assert first + 3 not in row


def test_no_module_looks_a_port_out_by_itself() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    makers = [path for path in files if "\ndef free_ports(" in path.read_text(encoding="utf-8")]
    assert makers == [ROOT / "tools" / "free_ports.py"]
