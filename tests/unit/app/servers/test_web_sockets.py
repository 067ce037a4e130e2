"""WebSockets of a broker have the limits of its settings."""

from __future__ import annotations

from geminga.app.configuration.config import load_config
from geminga.app.servers.web.sockets import web_sockets
from support.worlds.broker_world import BrokerWorld, run_with_broker


def test_limits_are_those_of_the_settings_and_leave_connections_to_requests() -> None:
    async def run(world: BrokerWorld) -> None:
        settings = ["webSocketMaxTextFrameSize=10", "webSocketSessionIdleTimeoutMillis=-1"]
        given = ["webSocketPingDurationSeconds=7", "webSocketPulsarClientMemoryLimitInMB=3"]
        config = load_config(overrides=[*settings, *given])
        service = web_sockets(world.broker, config, 100, is_alone=True)
        assert service.limits.sockets_max == 90
        assert service.limits.of_each == (10, 0.0, 7)
        assert service.limits.published_bytes_max == 3 << 20
        assert service.metrics()["geminga_websocket_connections"] == 0
        few = load_config(overrides=["gemingaWebSocketConnectionsMax=5"])
        assert web_sockets(world.broker, few, 100, is_alone=True).limits.sockets_max == 5
        assert web_sockets(world.broker, few, 1, is_alone=True).limits.sockets_max == 1
        await service.close()

    run_with_broker(run)


def test_standalone_serves_them_and_a_broker_of_a_cluster_where_it_is_told_to() -> None:
    assert load_config().server.web_sockets
    assert not load_config(overrides=["webSocketServiceEnabled=false"]).server.web_sockets
