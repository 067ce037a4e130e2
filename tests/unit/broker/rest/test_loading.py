"""The application is made of what is there, and loaded with the first who asks."""

from __future__ import annotations

from support.house.python_programs import run_python

PROGRAM = """
import sys
from geminga.broker.rest.loading import application_maker
make = application_maker(lambda: None)
before = [name for name in ("starlette", "uvicorn") if name in sys.modules]
make()
print(before, "starlette" in sys.modules)
"""


def test_http_software_is_imported_when_the_application_is_made() -> None:
    done = run_python(PROGRAM)
    assert done.stdout.strip() == "[] True"
