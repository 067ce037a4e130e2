"""Generate the protobuf classes of ``src/geminga/wire/proto`` into ``src/geminga/wire/_generated``.

``python tools/generate_protos.py`` writes them; ``--check`` writes nothing and fails, naming the files, if
what is checked in differs from what the schemas give. Needs ``grpcio-tools`` (extra ``dev``).

Types of texts say what comes: the classes give the bytes that were sent for a text that is no UTF-8. Commands with such
are refused before anybody reads them (``wire/pulsar/commands.py``); messages are not, so that texts of their metadata
are ``str | bytes``, and mypy finds who takes them for ``str``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "src" / "geminga" / "wire" / "proto"
TARGET = ROOT / "src" / "geminga" / "wire" / "_generated"
HEADER = "# Generated from {source} by tools/generate_protos.py: do not edit.\n"
#: Messages of ``pulsar_api`` that come from clients and are stored and handed on as they are.
UNCHECKED = frozenset({"EncryptionKeys", "KeyValue", "MessageMetadata", "SingleMessageMetadata"})
_CLASS = re.compile(r"class (\w+)\(")
_TEXT = re.compile(r"^(    \w+: (?:_containers\.RepeatedScalarFieldContainer\[)?)str(\]?)$")


def typed_as_read(stub: str) -> str:
    """A stub, in which texts of unchecked messages may be bytes."""
    lines, name = [], ""
    for line in stub.splitlines():
        if found := _CLASS.match(line):
            name = found[1]
        lines.append(_TEXT.sub(r"\1str | bytes\2", line) if name in UNCHECKED else line)
    return "\n".join(lines) + "\n"


def generate(target: Path) -> list[Path]:
    """Generate every schema into ``target``; returns the files written, sorted."""
    from grpc_tools import protoc

    schemas = sorted(SCHEMAS.glob("*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{SCHEMAS}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}"]
    if protoc.main(arguments + [str(schema) for schema in schemas]) != 0:
        raise SystemExit("protoc failed")
    written = []
    for schema in schemas:
        for suffix in (".py", ".pyi"):
            path = target / f"{schema.stem}_pb2{suffix}"
            text = path.read_text()
            if path.name == "pulsar_api_pb2.pyi":
                text = typed_as_read(text)
            path.write_text(HEADER.format(source=f"wire/proto/{schema.name}") + text)
            written.append(path)
    return written


def stale_files() -> list[str]:
    """Names of the checked-in files that differ from what the schemas give."""
    with tempfile.TemporaryDirectory() as directory:
        fresh = generate(Path(directory))
        return [
            path.name
            for path in fresh
            if not (TARGET / path.name).exists() or (TARGET / path.name).read_bytes() != path.read_bytes()
        ]


def main() -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if anything differs")
    if parser.parse_args().check:
        stale = stale_files()
        for name in stale:
            sys.stderr.write(f"out of date: src/geminga/wire/_generated/{name}\n")
        return 1 if stale else 0
    for path in generate(TARGET):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
