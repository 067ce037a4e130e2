"""The rows of topic lists are there before their handlers are loaded."""

from __future__ import annotations

import subprocess
import sys

from geminga.broker.handlers import topic_lists
from geminga.broker.handlers.rows import by_command
from geminga.wire._generated import pulsar_api_pb2 as pb

PROGRAM = """
import sys
import geminga.broker.composition.service
print("geminga.broker.handlers.topic_list" in sys.modules)
"""


def test_handlers_are_loaded_with_the_first_command_only() -> None:
    assert set(by_command(topic_lists.ROWS)) == {
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        pb.BaseCommand.WATCH_TOPIC_LIST,
        pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE,
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
