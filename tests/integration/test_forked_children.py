"""Children that tests fork: they end, whatever garbage they inherit."""

from __future__ import annotations

import os

import pulsar
import pytest

from support.house.forks import forked
from support.processes.official import quiet_client


@pytest.mark.timeout(20)
def test_child_does_not_free_the_official_clients_of_its_parent(standalone, fresh_topic, tmp_path) -> None:
    client = quiet_client(standalone.service_url, tmp_path)
    reader = client.create_reader(fresh_topic, pulsar.MessageId.earliest)
    reader.close()
    client.close()
    garbage = [client, reader]
    garbage.append(garbage)
    del client, reader, garbage

    def allocate() -> None:
        nested: list = []
        for _ in range(1_000_000):  # the collector of a child as it is comes by, and would not return
            nested = [nested]

    assert os.waitpid(forked(allocate), 0)[1] == 0
