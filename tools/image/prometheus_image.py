"""A Prometheus's image from the program of Debian's package, by the name in docs/deploy.md, where it is not there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from tools.image.podman import BASE, podman

NAME: Final = "docker.io/prom/prometheus:v2.53.5"
#: Paths are those of the project's own image.
_FILE: Final = f"""\
FROM {BASE}
COPY prometheus /bin/prometheus
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""


def make_prometheus() -> None:
    """Make it unless there is one. Raises SystemExit where there is no Prometheus."""
    if not podman("image", "exists", NAME, check=False).returncode:
        return
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("no prometheus here: apt-get install prometheus brings one")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        shutil.copy(program, place / "prometheus")
        (place / "Dockerfile").write_text(_FILE, encoding="utf-8")
        podman("build", f"--tag={NAME}", "--file", place / "Dockerfile", place)
