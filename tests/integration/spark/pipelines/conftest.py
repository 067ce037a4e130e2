"""A client of the broker, and a pipeline that reads a topic of it."""

from __future__ import annotations

from typing import Any

import pytest

import geminga.client.blocking
from geminga.spark.pipelines import Cluster, Guarantee, Pipeline, Source


@pytest.fixture
def client(standalone):
    with geminga.client.blocking.connect(standalone.service_url) as connected:
        yield connected


@pytest.fixture
def made(standalone, fresh_topic, tmp_path):
    """A pipeline's parts that all tests share."""

    def make(**parts: Any) -> Pipeline:
        fields: dict[str, Any] = {
            "name": "test",
            "cluster": Cluster(standalone.service_url),
            "every_ms": None,
            "guarantee": Guarantee.AT_LEAST_ONCE,
            "checkpoint": str(tmp_path / "checkpoint"),
            "sources": (Source(topics=(fresh_topic,), columns="id long, item string, cents long"),),
        }
        return Pipeline(**{**fields, **parts})

    return make
