"""``make image``: localhost/geminga, built by podman from container/Dockerfile on a Debian that debootstrap makes.

No registry of images is asked. The base is kept: it is made again after ``podman rmi localhost/geminga-base``.
"""

from __future__ import annotations

import subprocess
import tempfile
from typing import Final

from tools.image.files import ROOT, put_together
from tools.image.podman import BASE, IMAGE, environment, podman, require

SUITE: Final = "bookworm"


def make_base() -> None:
    """Debian's smallest, with its Python."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=python3", SUITE, directory],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        tar = subprocess.Popen(
            ["tar", "-C", directory, "-c", "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "."],
            stdout=subprocess.PIPE,
        )
        subprocess.run(["podman", "import", "-", BASE], stdin=tar.stdout, env=environment(), check=True)
        if tar.wait():
            raise SystemExit(f"tar of the base ended with {tar.returncode}")


def build() -> None:
    """The image, under its own name."""
    require()
    put_together()
    if podman("image", "exists", BASE, check=False).returncode:
        make_base()
    # A health check is in Docker's format of an image, not in OCI's; every runtime and registry takes both.
    podman(
        *("build", "--format=docker", "--network=host", f"--build-arg=BASE={BASE}", f"--tag={IMAGE}"),
        *("--file", ROOT / "container" / "Dockerfile", ROOT),
        timeout_s=900,
    )
    # A build before leaves its layers.
    podman("image", "prune", "--force")
    size = int(podman("image", "inspect", "--format={{.Size}}", IMAGE).stdout)
    print(f"{IMAGE}: {size / 1e6:.0f} MB unpacked")


if __name__ == "__main__":
    build()
