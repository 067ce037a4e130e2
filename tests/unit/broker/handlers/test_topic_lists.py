"""The rows of topic lists are there before their handlers are loaded."""

from __future__ import annotations

from geminga.broker.handlers import topic_lists
from geminga.broker.handlers.rows import by_command
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.python_programs import run_python

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
    done = run_python(PROGRAM)
    assert done.stdout.strip() == "False"
