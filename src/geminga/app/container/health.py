"""``python -m geminga.app.container.health``: 0 while the container's server serves. For health checks; loads little.

The server's program keeps the URL that answers then (``config_copies.remember``). Where there is none because nothing
is served over plain HTTP, that the process runs is all that is known.
"""

from __future__ import annotations

import http.client
import os
import sys
from typing import Final
from urllib.parse import urlsplit

from geminga.app.container.config_copies import image_of, remembered
from geminga.app.container.core.words import STATUS_PATH

#: A health check ends before it is asked again.
TIMEOUT_S: Final = 5.0


def ask() -> int:
    """0: healthy; 1: not, and why is on standard error."""
    url = remembered(image_of(os.environ), "health")
    if url is None:
        print("no server was started in this container, or nothing can be written", file=sys.stderr)
        return 1
    if not url:
        return 0
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        print(f"{url}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status >= 300 and (status, parts.path) != (404, STATUS_PATH):
        print(f"{url}: {status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(ask())
