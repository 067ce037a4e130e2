"""A simulated broker with the settings that are changed at run time, put together as the composition root does it."""

from __future__ import annotations

from geminga.app.configuration.config import Config
from geminga.app.configuration.live_settings import LiveSettings
from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.broker_server import CONFIGURATION_PATH
from geminga.bookie.config import BookieConfig
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.broker.load_rules.config import LoadConfig
from support.worlds.broker_world import BrokerWorld


def config_of(world: BrokerWorld, load: LoadConfig | None = None) -> Config:
    """The configuration that the world's broker has."""
    return Config(
        ServerConfig(), world.broker.config, world.ledgers.config, BookKeeperConfig(), BookieConfig(), load=load
    )


def live_settings_of(world: BrokerWorld) -> LiveSettings:
    """Followed by the world's broker, through the watch too."""
    broker = world.broker
    live = LiveSettings(config_of(world), world.metadata, CONFIGURATION_PATH, broker.settings_changed, lambda: broker)
    world.metadata.watch_node(CONFIGURATION_PATH, lambda _: live.follow_soon())
    return live
