"""What stands in a configuration and must not stand in a log, an error or an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolcrib.config.settings import GatewayConfig, ServerConfig

_NAMED: Final = re.compile(r"(?i)key|token|secret|passw|pwd|auth|credential|cookie|dsn|url")


def collect_server_secrets(server: ServerConfig) -> Iterator[str]:
    """The secrets that a server is given: headers, and variables that are named like one."""
    yield from server.headers.values()
    yield server.oauth_client_secret
    yield from (value for name, value in server.env.items() if _NAMED.search(name))


def collect_config_secrets(config: GatewayConfig) -> Iterator[str]:
    """All secrets of a configuration."""
    for server in config.servers.values():
        yield from collect_server_secrets(server)
    yield config.embedding.key
    for upstream in config.llm_gateway.upstreams:
        yield upstream.key
        yield from upstream.headers.values()
