"""The checksum, and that nothing of its package comes with it."""

from __future__ import annotations

import crc32c as package

from geminga.model.crc32c import crc32c
from support.house.python_programs import run_python


def test_values_are_those_of_rfc_3720() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(memoryview(b"\xff" * 32)) == 0x62A8AB43


def test_checksum_goes_on_from_another() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == package.crc32c(b"123456789")


def test_package_is_not_loaded() -> None:
    program = (
        "import sys, geminga.model.crc32c\n"
        "print([name for name in ('crc32c', 'argparse', 'importlib.metadata') if name in sys.modules])\n"
        "import crc32c\n"
        "print(crc32c.crc32c(b'1') == geminga.model.crc32c.crc32c(b'1'))\n"
    )
    done = run_python(program)
    assert done.stdout.splitlines() == ["[]", "True"]
