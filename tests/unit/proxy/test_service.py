"""A proxy as a whole: roles in its log, and its end."""

from __future__ import annotations

from geminga import sim
from geminga.broker.access.anonymous import OPEN
from geminga.proxy.brokers import Brokers, FixedEntry
from geminga.proxy.config import ProxyConfig
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.proxy.service import ProxyService
from geminga.proxy.services import ProxyServices
from support.worlds.proxy_world import BROKER, in_world, let_in
from support.worlds.scripted_broker import polite


def test_roles_are_shown_in_the_log_as_configured() -> None:
    async def main(world: sim.SimWorld) -> None:
        runtime = world.node("door").runtime

        async def resolve(host: str, port: int) -> list[str]:
            return [host]

        def services(anonymizer: str) -> ProxyServices:
            brokers = Brokers(
                runtime,
                AllowedTargets(["*"], ["*"], ["*"]),
                resolve,
                authentication=None,
                tls=None,
                timeout_s=1,
                message_bytes_max=1,
                version="",
                sends_header=False,
            )
            entry = FixedEntry(Target("b", 1))
            made = ProxyService(
                runtime, ProxyConfig(), OPEN, brokers, entry, version="", handshake_s=1, anonymizer=anonymizer
            )
            return made.services

        assert services("NONE").shown_role("jane") == "jane"
        assert services("REDACTED").shown_role("jane") == "[REDACTED]"
        assert "jane" not in services("hash:SHA256").shown_role("jane")

    sim.run(main)


def test_a_stop_does_not_wait_for_a_broker_that_is_silent() -> None:
    async def story(proxy, new_client) -> None:
        client = await let_in(new_client, to=BROKER)
        begin_s = proxy.world.now
        await proxy.service.stop(30)
        await client.lost.wait()
        assert proxy.world.now - begin_s < 6
        late = await new_client()
        assert "stopping" in (await late.next()).error.message

    in_world(story, polite)
