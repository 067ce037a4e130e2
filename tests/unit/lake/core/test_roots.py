"""Where a lake is, by settings."""

from __future__ import annotations

import pytest

from geminga.lake.core.roots import directory_root
from geminga.model.errors import ConfigurationError


def test_a_uri_names_the_whole_path_or_is_refused():
    assert directory_root("file:///data/lake%232") == "file:///data/lake#2"
    assert directory_root("/data/lake#2") == "file:///data/lake#2"
    for uri in ("file:///data/lake#2", "file:///data/lake?2"):
        with pytest.raises(ConfigurationError, match="%23"):
            directory_root(uri)
