"""What a failed query says, in one paragraph: not the Java stack, not the Python one."""

from __future__ import annotations

import re
from typing import Final

CHARACTERS_MAX: Final = 1200
#: The last line of a Python traceback: ``package.Error: text`` at the beginning of a line.
_PYTHON: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Warning|Exit|Interrupt|Timeout|NotFound|Busy)?): (\S.*)$"
)
_JAVA: Final = re.compile(r"^(?:Caused by: )?(?:[a-z]\w*\.)+([A-Z][\w$]*): (\S.*)$")
_CODE: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(\S.*)", re.DOTALL)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")


def explain(text: str) -> str:
    """The paragraph; what our own code raised goes before what Spark says of it."""
    lines = [line.rstrip() for line in text.splitlines()]
    ours = _last_python(lines)
    found = ours or _condition(text) or _first_java(lines) or next((line for line in lines if line.strip()), "")
    found = " ".join(_STATE.sub("", found).split())
    return found if len(found) <= CHARACTERS_MAX else found[: CHARACTERS_MAX - 3] + "..."


def _last_python(lines: list[str]) -> str:
    """The text of the innermost Python exception that a traceback of the text ends with."""
    found = ""
    inside = False
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            match = _PYTHON.match(line)
            if match is not None and not _is_of_java(match[1]):
                found = f"{match[2]}{_more(lines, number)}" if _speaks(match[1]) else f"{match[1]}: {match[2]}"
            inside = False
    return found


def _more(lines: list[str], number: int) -> str:
    """What an error says in further lines."""
    found = []
    for line in lines[number + 1 : number + 6]:
        if not line.strip() or line.lstrip().startswith(("at ", "Traceback", "During", "The above", "File", "...")):
            break
        found.append(line.strip())
    return "".join(f" {line}" for line in found)


def _is_of_java(name: str) -> bool:
    return name in ("Py4JJavaError", "Py4JError", "Py4JNetworkError")


def _speaks(name: str) -> bool:
    """Whether an error's text is a sentence by itself; of Python's own the name is half of it."""
    return name not in ("KeyError", "ValueError", "TypeError", "AttributeError", "IndexError", "AssertionError")


def _condition(text: str) -> str:
    """Spark's own sentence behind the innermost condition that says more than that a query failed."""
    found = ""
    for match in _CODE.finditer(text.replace("\r", "")):
        if match[1] in ("STREAM_FAILED", "FAILED_EXECUTE_UDF", "PYTHON_DATA_SOURCE_ERROR"):
            continue
        sentence = match[2]
        for end in (" SQLSTATE", "\n\n", "\n\tat ", ";\n", "== SQL", "\n=== "):
            sentence = sentence.split(end)[0]
        found = sentence.strip()
        break
    return found


def _first_java(lines: list[str]) -> str:
    found = ""
    for line in lines:
        match = _JAVA.match(line)
        if match is not None:
            found = match[2] if found or match[1].endswith("StreamingQueryException") else f"{match[1]}: {match[2]}"
    return found
