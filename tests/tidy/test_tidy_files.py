"""What tracked files may not hold, wherever they lie."""

from __future__ import annotations

import pytest

from support.house.source_tree import ROOT, tracked_files
from support.house.tidy_rules import lock_violations, text_violations

TEXT_SUFFIXES = {"", ".cfg", ".conf", ".in", ".json", ".lock", ".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml"}


def test_tracked_files_hold_no_markers_machine_paths_or_package_indexes() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT_SUFFIXES:
            found += text_violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_lock_files_name_versions_and_hashes_only() -> None:
    for name in ("requirements.lock", "tools/spark-extras.lock", "tools/fuzz.lock", "tools/browser.lock"):
        assert lock_violations((ROOT / name).read_text(encoding="utf-8")) == [], name


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "raise NotImplemented" + "Error",
        "see /wo" + "rk/main/x.py",
        "see /ho" + "me/jane/x.py",
        "--index" + "-url https://host/simple",
        "https://py" + "pi.org/simple",
        "told apart (FAC" + "TS B4)",
        "only what it can keep (DES" + "IGN 9.3).",
        "its wheel (S" + "0 33-35, and more)",
        "a negative acknowledg" + "ement",
    ],
)
def test_planted_line_is_caught(line: str) -> None:
    assert text_violations("x.py", f"fine\n{line}\n") != []


def test_planted_lock_lines_are_caught() -> None:
    assert lock_violations("a==1 \\\n    --hash=sha256:00\n") == []
    assert lock_violations("a==1\nb==2 \\\n    --hash=sha256:00\n") != []
    assert lock_violations("a @ https://host/a.whl \\\n    --hash=sha256:00\n") != []


def test_the_first_commands_of_the_readme_are_two() -> None:
    """A fresh machine with Python and ``make`` needs no others."""
    block = (ROOT / "README.md").read_text().split("```")[1]
    commands = [line.partition("#")[0].strip() for line in block.splitlines()[1:]]
    assert commands == ["make demo", "make test"]
