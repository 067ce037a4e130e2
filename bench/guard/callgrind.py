"""What callgrind counts, from when and until when: requests to it by the counted process, and its output file.

A request is the instruction sequence that Valgrind's manual gives for amd64 ("The Client Request mechanism"); on a
bare processor it does nothing. So the start of a process and its warming are not counted, and run at a tenth of the
cost of what is.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.servers import BenchError

#: Of callgrind: 'C' 'T' in the upper half, the number of the request in the lower.
_TOOL = 0x43540000
_START, _STOP = _TOOL + 4, _TOOL + 5
#: uint64 request(uint64 *arguments), System V: the arguments in rax, the answer without Valgrind (0) in rdx.
_CODE = bytes.fromhex(
    "53"  # push rbx
    "4889f8"  # mov rax, rdi
    "31d2"  # xor edx, edx
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: by 128 together
    "4887db"  # xchg rbx, rbx
    "4889d0"  # mov rax, rdx
    "5b c3"  # pop rbx; ret
)
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)
_FUNCTION = re.compile(r"^cfn=\((\d+)\)(?: (\S+))?\ncalls=(\d+)", re.MULTILINE)
_NAMED = re.compile(r"^c?fn=\((\d+)\) (\S+)", re.MULTILINE)


class Requests:
    """Counting begins and ends as the process says; it is to run with ``--instr-atstart=no``."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))(address)

    def start(self) -> None:
        """What comes is counted."""
        self._request(_START)

    def stop(self) -> None:
        """What comes is counted no more."""
        self._request(_STOP)

    def _request(self, number: int) -> None:
        self._ask((ctypes.c_uint64 * 6)(number))


def command(out: Path) -> list[str]:
    """What stands before the command of a process to be counted. Raises BenchError where it can not be."""
    if shutil.which("valgrind") is None:
        raise BenchError(
            "make bench-guard needs valgrind, which is not installed (Debian, Ubuntu: apt install valgrind)"
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        raise BenchError(f"make bench-guard counts on x86-64 only, this is {platform.machine()}")
    return ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]


def instructions(text: str) -> int:
    """Of an output file; raises BenchError if nothing was counted."""
    found = _TOTALS.search(text)
    if found is None or not int(found[1]):
        raise BenchError("callgrind counted nothing")
    return int(found[1])


def calls_of(text: str, names: Sequence[str]) -> int:
    """How often functions of these names were called, by an output file with compressed names."""
    numbers = {number for number, name in _NAMED.findall(text) if name.partition("'")[0] in names}
    return sum(int(count) for number, _, count in _FUNCTION.findall(text) if number in numbers)
