"""Of ``make package``: what type checkers say of a user's program beside the installed wheel.

``tools/typed_program.py`` passes ``mypy --strict`` and ``pyright`` in its strict mode, and mistakes that are planted in
it do not: so it is the wheel's types that are read, and not nothing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = ROOT / "tools" / "typed_program.py"
#: Of the package index of npm.
PYRIGHT: Final = "1.1.414"
#: Mistakes: the type of a content, of an argument, and of what comes back.
PLANTED: Final = """

async def mistaken(client: geminga.client.Client) -> None:
    producer = await client.create_producer("orders", schema=JsonSchema(Order))
    await producer.send("no order")
    geminga.client.connect(1)
    message_id: str = await producer.send(Order("o-1", 1.0))
    print(message_id)
"""
#: How many of those lines are wrong.
MISTAKES: Final = 3

Run = Callable[[Sequence[str | Path]], str]


def locked_mypy() -> str:
    """``mypy==version`` as in the lock."""
    found = re.search(r"^(mypy==\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def install_pyright(directory: Path, run: Run) -> Path:
    """Its program, in ``directory``."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm, which brings pyright: install Node.js")
    directory.mkdir(exist_ok=True)
    run([npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", directory, f"pyright@{PYRIGHT}"])
    return directory / "node_modules" / ".bin" / "pyright"


def write_programs(directory: Path, python: Path) -> tuple[Path, Path]:
    """The program, and the one with mistakes, each in a folder with the settings of pyright."""
    made = []
    text = PROGRAM.read_text(encoding="utf-8")
    for name, content in (("right", text), ("wrong", text + PLANTED)):
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "program.py").write_text(content, encoding="utf-8")
        venv = python.parent.parent
        settings = {"venvPath": str(venv.parent), "venv": venv.name, "typeCheckingMode": "strict"}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        made.append(folder)
    return made[0], made[1]


def mypy_command(python: Path, folder: Path) -> list[str | Path]:
    """Strict, without the settings of this repository."""
    own = ["--config-file=", "--cache-dir", str(folder / "cache")]
    return [python, "-m", "mypy", "--strict", *own, folder / "program.py"]


def errors_in(told: str) -> int:
    """How many errors either of them counted at its end."""
    found = re.search(r"(?:Found )?(\d+) errors?\b", told)
    return int(found[1]) if found is not None else 0
