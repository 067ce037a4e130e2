"""What failed is told in full to who administers the tenant, and to who may only produce or consume that it did."""

from __future__ import annotations

import json

import pytest

from geminga.broker.access.policy_authorizer import PolicyAuthorizer
from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.resources.documents import Document
from geminga.broker.rest.topic_routes.troubles import NOT_TOLD, without_errors
from geminga.model.topic_name import TopicName
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import ask
from support.worlds.rights_world import PATHS, TOPIC, Story, tell

ERROR = "http://10.0.0.7:8080 does not answer, with the credentials of /etc/geminga/west.token"


@pytest.mark.parametrize("path", ["internalStats", "partitioned-internalStats"])
def test_errors_in_statistics_are_told_to_administrators_alone(path: str) -> None:
    async def scenario(story: Story) -> None:
        partition = f"{TOPIC}-partition-0"
        if path.startswith("partitioned"):
            await story.world.broker.partitions.create(TopicName.parse(TOPIC), 1)
        await story.do("POST", "/admin/v2/tenants/public", {"adminRoles": ["anna"], "allowedClusters": ["standalone"]})
        await story.grant("jane", "consume")
        await story.grant("jim", "produce")
        name = partition if path.startswith("partitioned") else TOPIC
        await (await story.producer("root", name)).close_producer()
        await story.do("PUT", f"{PATHS[TOPIC]}/compaction")
        await seconds(1)
        part = story.world.broker.topics[name].parts.find(TopicCompaction)
        assert part is not None

        async def seen(role: str) -> str:
            answer = await ask(story.application, "GET", f"{PATHS[TOPIC]}/{path}", b"", role=role)
            assert answer.status == 200, answer
            document = json.loads(answer.body)
            stats = document["partitions"][partition] if "partitions" in document else document
            error = stats["geminga"]["compaction"]["lastError"]
            assert isinstance(error, str)
            return error

        assert {await seen(role) for role in ("root", "anna", "jane", "jim")} == {""}
        # Who may not know more was not refused for it.
        authorizer = story.world.broker.access.authorizer
        assert isinstance(authorizer, PolicyAuthorizer)
        assert authorizer.refused["topic"] == 0
        part.last_error = ERROR
        assert [await seen(role) for role in ("root", "anna", "jane", "jim")] == [ERROR, ERROR, NOT_TOLD, NOT_TOLD]

    tell(scenario)


def test_no_error_is_left_where_users_choose_no_names_and_nothing_is_changed_where_they_do() -> None:
    theirs: Document = {
        "properties": {"reason": ERROR},
        "publishers": [{"metadata": {"error": ERROR}}],
        "subscriptions": {"reason": {"properties": {"lastError": ERROR}}},
        "connected": False,
    }
    stats: Document = {
        **theirs,
        "replication": {"west": {"disconnectedReason": ERROR}, "east": {"disconnectedReason": ""}},
        "geminga": {
            "replication": {"west": {"state": "waiting", "reason": ERROR}},
            "offload": {"lastError": ERROR, "root": "file:/lake"},
            "deduplication": {"highestSequenceIds": {"reason": "7"}},
        },
    }
    lake: Document = {"lastError": ERROR, "restore": {"lastError": ERROR}, "filesToDelete": [{"error": ERROR}]}
    holes: Document = {"holes": [{"error": ERROR, "unreadOf": {"reason": 2}}], "skipped": [{"error": ERROR}]}
    hushed: Document = {
        **theirs,
        "replication": {"west": {"disconnectedReason": NOT_TOLD}, "east": {"disconnectedReason": ""}},
        "geminga": {
            "replication": {"west": {"state": "waiting", "reason": NOT_TOLD}},
            "offload": {"lastError": NOT_TOLD, "root": "file:/lake"},
            "deduplication": {"highestSequenceIds": {"reason": "7"}},
        },
    }
    assert without_errors(stats) == hushed
    assert without_errors({**theirs, "partitions": {"reason": stats}}) == {**theirs, "partitions": {"reason": hushed}}
    for document in (lake, holes):
        text = json.dumps(without_errors(document))
        assert text == json.dumps(document).replace(ERROR, NOT_TOLD)
    # Nothing else is touched.
    assert without_errors({"reason": "", "partitions": [1]}) == {"reason": "", "partitions": [1]}
