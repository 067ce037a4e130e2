"""Programs in a Python of their own: what is loaded there, and what it says, is nothing of this process."""

from __future__ import annotations

import subprocess
import sys


def run_python(program: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it and take what it writes. Raises CalledProcessError if it fails, unless ``check`` is off."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=check)
