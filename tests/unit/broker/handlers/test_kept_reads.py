"""Who reads payloads over the binary protocol has a line in the audit log: let in, or refused."""

from __future__ import annotations

import json
from dataclasses import replace

from geminga.broker.access.audit import Auditor
from geminga.broker.handlers.kept_reads import COMMAND
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rights_world import ACCESS, TOPIC

SETTINGS = {"authorization_enabled": True, "super_user_roles": ("root",)}


class Lines:
    """In memory."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []

    def add(self, line: str) -> None:
        self.entries.append(json.loads(line))


def test_who_reads_payloads_over_the_binary_protocol_has_a_line() -> None:
    lines, told = Lines(), []
    audit = Auditor(lines, lambda: 1_795_000_000_123)

    async def scenario(world: BrokerWorld) -> None:
        browse = [pb.KeyValue(key=COMMAND, value="messages browse & x")]
        endless = [pb.KeyValue(key=COMMAND, value="y" * 100_000)]
        for role in ("root", "jane"):
            client = await world.client(role)
            kinds: list[dict[str, object]] = [
                {"metadata": browse, "durable": False},
                {"metadata": endless},
                {"durable": False},
                {},
            ]
            for number, fields in enumerate(kinds):
                request = pb.CommandSubscribe(
                    topic=TOPIC,
                    subscription=f"{role}-{number}",
                    subType=pb.CommandSubscribe.Shared,
                    consumer_id=number,
                    request_id=number + 10,
                    **fields,
                )
                client.send(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=request))
                await client.expect(pb.BaseCommand.SUCCESS if role == "root" else pb.BaseCommand.ERROR)
        told.append([(each["role"], each["path"], each["status"]) for each in lines.entries])
        assert {(each["action"], each["method"]) for each in lines.entries} == {("read messages", "SUBSCRIBE")}
        assert all(str(each["peer"]).startswith("127.0.0.1:") for each in lines.entries)
        lines.entries.clear()

    for all_readers in (False, True):
        access = replace(ACCESS, audit=audit, audits_readers=all_readers)
        run_with_broker(scenario, access=access, **SETTINGS)
    named, endless = f"{TOPIC}?command=messages%20browse%20%26%20x", f"{TOPIC}?command=%28100000%20characters%29"
    by_name = {
        role: [(role, named, status), (role, endless, status)] for role, status in (("root", 200), ("jane", 403))
    }
    assert told == [
        [*by_name["root"], *by_name["jane"]],
        [*by_name["root"], ("root", TOPIC, 200), *by_name["jane"], ("jane", TOPIC, 403)],
    ]
