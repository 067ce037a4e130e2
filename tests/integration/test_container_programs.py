"""The programs of the image, from a plain directory: the very words that testcontainers starts a container with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

from geminga.app.container.core.words import POLICIES_LINE
from geminga.app.container.default_files import write_files

ROOT = Path(__file__).resolve().parents[2]
#: Of testcontainers, but for the directory.
COMMAND = (
    "{home}/bin/apply-config-from-env.py {home}/conf/standalone.conf && "
    "bin/pulsar standalone --no-functions-worker -nss"
)
FREE_PORTS = {"PULSAR_PREFIX_brokerServicePort": "0", "PULSAR_PREFIX_webServicePort": "0"}


def image_directory(home: Path) -> Mapping[str, str]:
    """Files as the image has them, below ``home``; the environment of its programs."""
    (home / "bin").symlink_to(ROOT / "container" / "bin")
    write_files(str(home / "conf"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PULSAR_HOME": str(home),
        "PULSAR_COPY_DIR": "data/.conf",
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
    }


def test_a_standalone_starts_as_in_a_container_and_serves_the_commands_beside_it(tmp_path: Path) -> None:
    environment = {**image_directory(tmp_path), **FREE_PORTS, "PULSAR_PREFIX_clusterName": "mine"}
    command = ["/bin/bash", "-c", COMMAND.format(home=tmp_path)]
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            said = []
            while not said or " is ready after " not in said[-1]:
                line = process.stdout.readline().decode()
                assert line, (tmp_path / "errors").read_text()
                said.append(line)
            assert said[-2] == f"{POLICIES_LINE}\n"
            ports = re.findall(r"://[^ :]+:([0-9]+)", said[-1])
            with urlopen(f"http://127.0.0.1:{ports[1]}/admin/v2/clusters") as answer:
                assert json.load(answer) == ["mine"]
            url = f"pulsar://127.0.0.1:{ports[0]}"

            def run(*words: str) -> str:
                return subprocess.run(
                    words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
                ).stdout

            assert run("bin/pulsar-client", "--url", url, "produce", "t", "-m", "a,b") == "2 messages sent\n"
            found = run("bin/pulsar-client", "--url", url, "consume", "t", "-s", "s", "-p", "Earliest", "-n", "2")
            assert re.findall(r"\] (\w+)\n", found) == ["a", "b"]
            second = ["bin/pulsar", "standalone", "--wipe-data"]
            done = subprocess.run(second, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
            assert done.returncode == 1
            assert "is in use by another process, and nothing of it was removed" in " ".join(done.stderr.split())
            found = run("bin/pulsar-client", "--url", url, "consume", "t", "-s", "again", "-p", "Earliest", "-n", "2")
            assert re.findall(r"\] (\w+)\n", found) == ["a", "b"]
            # Ports that the kernel picks are not known before: that it runs is enough.
            run("bin/healthcheck")
        finally:
            process.terminate()
    assert process.returncode == 0
    first = (tmp_path / "errors").read_text().splitlines()
    assert any("OPEN: nothing asks who clients are" in line for line in first[:2])
    assert (tmp_path / "data" / "standalone").is_dir()


def test_what_is_not_there_ends_with_one_sentence(tmp_path: Path) -> None:
    environment = image_directory(tmp_path)

    def refused(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr

    assert "no server was started" in refused("bin/healthcheck")
    assert "functions are not built" in refused("bin/pulsar", "functions-worker")
    assert "neither brokerServiceURL nor metadataStoreUrl is set" in refused("bin/pulsar", "proxy")
