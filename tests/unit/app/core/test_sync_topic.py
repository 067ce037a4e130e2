"""The topic by which clusters keep their configuration alike."""

from __future__ import annotations

import pytest

from geminga.app.configuration.cluster_config import load_broker_config
from geminga.app.configuration.config import load_config
from geminga.app.configuration.core.sync_topic import KEY, require_sync_topic
from geminga.model.errors import ConfigurationError

TOPIC = "persistent://public/sync/events"


def test_topic_that_stores_its_messages_is_taken() -> None:
    require_sync_topic(TOPIC)
    assert load_config(overrides=[f"{KEY}={TOPIC}"]).server.configuration_sync_topic == TOPIC
    assert load_config().server.configuration_sync_topic == ""


@pytest.mark.parametrize(
    "text", ["non-persistent://public/sync/events", "persistent://public/sync/events-partition-0", "a/b", "://"]
)
def test_another_one_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{KEY}=.*expected a topic that stores its messages"):
        load_config(overrides=[f"{KEY}={text}"])
    with pytest.raises(ConfigurationError, match=f"{KEY}="):
        load_broker_config(overrides=["metadataStoreUrl=zk:localhost:2181", f"{KEY}={text}"])
