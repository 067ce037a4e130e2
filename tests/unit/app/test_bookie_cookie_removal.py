"""``geminga bookie format --delete-cookie``: what is asked for in vain. (On a real ZooKeeper: test_bookie_cluster.)"""

from __future__ import annotations

import pytest

from geminga.app.bookie_config import load_bookie_config
from geminga.app.bookie_cookie_removal import remove_cookie
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie


def test_metadata_store_and_directory_must_be_told() -> None:
    cookie = BookieCookie("b:1", ("/j",), ("/l",))
    with pytest.raises(ConfigurationError, match="expected a metadata store"):
        remove_cookie(load_bookie_config(), cookie)
    with pytest.raises(DataDirectoryError, match="no directory tells the bookie's id"):
        remove_cookie(load_bookie_config(overrides=["metadataServiceUri=zk:127.0.0.1:1"]), None)
