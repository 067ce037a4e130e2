"""What the settings say that pages of other origins may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.errors import ConfigurationError
from geminga.wire.cors import CorsError, CorsRules, cors_rules

if TYPE_CHECKING:
    from geminga.app.configuration.server_config import ServerConfig


def cors_of(config: ServerConfig) -> CorsRules:
    """Raises ConfigurationError."""
    try:
        return cors_rules(
            config.cors_origins,
            config.cors_methods,
            config.cors_headers,
            has_credentials=config.cors_credentials,
            max_age_s=config.cors_max_age_s,
        )
    except CorsError as error:
        raise ConfigurationError(str(error)) from error
