"""Corpora as they are kept: a text file for each target, an input in base64 a line, sorted by length."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent / "corpus"
#: Inputs of a target that are kept; the shortest are.
INPUTS_MAX: Final = 250


def read(name: str) -> list[bytes]:
    """The inputs of a target."""
    path = DIRECTORY / f"{name}.txt"
    return [base64.b64decode(line, validate=True) for line in path.read_text().split()] if path.exists() else []


def write(name: str, inputs: Iterable[bytes]) -> None:
    """Keep these, each once."""
    kept = sorted({one for one in inputs if one}, key=lambda one: (len(one), one))[:INPUTS_MAX]
    (DIRECTORY / f"{name}.txt").write_bytes(b"".join(base64.b64encode(one) + b"\n" for one in kept))


def unpack(inputs: Iterable[bytes], directory: Path) -> None:
    """As libFuzzer reads them: a file each, named by its digest."""
    directory.mkdir(parents=True, exist_ok=True)
    for one in inputs:
        (directory / hashlib.sha1(one).hexdigest()).write_bytes(one)


def packed(directory: Path) -> list[bytes]:
    """All files of a directory."""
    return [path.read_bytes() for path in directory.iterdir() if path.is_file()]
