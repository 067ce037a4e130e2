"""The application is made of what is there, and loaded with the first who asks."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from geminga.broker.rest.loading import application_maker
make = application_maker(lambda: None)
before = [name for name in ("starlette", "uvicorn") if name in sys.modules]
make()
print(before, "starlette" in sys.modules)
"""


def test_http_software_is_imported_when_the_application_is_made() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
