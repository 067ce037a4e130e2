"""The examples of docs/spark.md run as they stand, one after the other; those of spark-day-one.md can."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import pytest

import geminga.client.blocking
from geminga.client import MessageId
from support.house.source_tree import ROOT


def examples() -> list[tuple[int, str]]:
    """(line, text) of every Python block that is to be run."""
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start(1)), found[1])
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


def test_blocks_of_day_one_are_programs():
    """They run in a long test (test_spark_day_one.py)."""
    text = (ROOT / "docs" / "spark-day-one.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} == {"python", "sh"}
    for language, block in found:
        if language == "python":
            compile(block, "docs/spark-day-one.md", "exec")
        else:
            subprocess.run(["/bin/sh", "-n"], input=block, text=True, check=True, timeout=60)


@pytest.mark.timeout(400)
def test_examples_run_one_after_the_other(spark_session, standalone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for line, text in examples():
        # The session is the tests' own; Spark would give it to the example anyway.
        runnable = text.replace("pulsar://localhost:6650", standalone.service_url)
        runnable = runnable.replace('"checkpoints/', f'"{tmp_path}/checkpoints/').replace(
            '"orders-of', f'"{tmp_path}/of'
        )
        exec(compile("\n" * line + runnable, "docs/spark.md", "exec"), names)
    assert spark_session.read.parquet(f"{tmp_path}/of-the-night").count() == 360
    counts = Counter()
    with geminga.client.blocking.connect(standalone.service_url) as client:
        for topic in ("large-orders", "hourly", "hourly-closed", "orders-again", "named-orders"):
            reader = client.create_reader(topic, MessageId.earliest)
            while reader.has_message_available():
                reader.read_next()
                counts[topic] += 1
    hours = -(-1000 // 60)
    assert counts["large-orders"] == 600
    assert counts["hourly"] == hours * 7
    # The last order is in minute 999: windows that end two hours before are closed.
    assert counts["hourly-closed"] == (999 - 120) // 60 * 7
    assert counts["orders-again"] == 360
    assert counts["named-orders"] == 1000
