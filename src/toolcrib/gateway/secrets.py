"""Secrets of a configuration, which must not appear in logs, errors or responses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolcrib.config.settings import GatewayConfig, ServerConfig

_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|pwd|auth|credential|cookie|dsn|url")


def collect_server_secrets(server: ServerConfig) -> Iterator[str]:
    """Yield the secrets of a server: headers, and variables whose names suggest a secret."""
    yield from server.headers.values()
    yield server.oauth_client_secret
    yield from (value for name, value in server.env.items() if _SECRET_NAME.search(name))


def collect_config_secrets(config: GatewayConfig) -> Iterator[str]:
    """Yield all secrets of a configuration."""
    for server in config.servers.values():
        yield from collect_server_secrets(server)
    yield config.embedding.key
    for upstream in config.llm_gateway.upstreams:
        yield upstream.key
        yield from upstream.headers.values()
