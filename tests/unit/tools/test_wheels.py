"""Which packages a compiled wheel is built with, and which wheel is a Python's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.package_check import ROOT, Failed, compiled_wheel
from tools.wheels import BUILD_PACKAGES, locked

LOCK = """alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via beta
alpha-more==2.0 \\
    --hash=sha256:cc
beta[extra]==3.0 ; python_version < '4' \\
    --hash=sha256:dd
"""


def test_lines_of_a_lock_are_those_of_the_packages_with_their_hashes() -> None:
    assert locked(frozenset({"alpha"}), LOCK) == LOCK[: LOCK.index("alpha-more")]
    assert locked(frozenset({"beta"}), LOCK) == LOCK[LOCK.index("beta[") :]


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(Failed, match="does not have gamma"):
        locked(frozenset({"alpha", "gamma"}), LOCK)


def test_all_that_a_build_takes_is_locked() -> None:
    found = locked(BUILD_PACKAGES, (ROOT / "requirements.lock").read_text())
    assert found.count("==") == len(BUILD_PACKAGES)


def test_a_python_has_one_compiled_wheel_or_none(tmp_path: Path) -> None:
    pure = tmp_path / "geminga-0.1.0-py3-none-any.whl"
    mine = tmp_path / "geminga-0.1.0-cp312-cp312-linux_x86_64.whl"
    for wheel in (pure, mine):
        wheel.touch()
    assert compiled_wheel("3.12", tmp_path) == mine
    with pytest.raises(Failed, match=r"0 compiled wheels for Python 3\.11"):
        compiled_wheel("3.11", tmp_path)
