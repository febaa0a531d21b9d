"""Secrets of a configuration, which must not appear in logs, errors or responses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig

_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|pwd|auth|credential|cookie|dsn|url")

_SECRET_MEMBER: Final = re.compile(
    r"(?i)key|token|secret|passw|pwd|^auth|credential|cookie|dsn|^headers$|^query$|^basicauth$|hash"
)


def collect_document_secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts of a JSON document that may be secrets, judged by the names of their members.

    A reference to a variable, such as `${TOKEN}`, is not a secret.
    """
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from collect_document_secrets(member, is_secret=is_secret or bool(_SECRET_MEMBER.search(name)))
    elif isinstance(value, list):
        for item in value:
            yield from collect_document_secrets(item, is_secret=is_secret)
    elif isinstance(value, str) and is_secret and "${" not in value:
        yield value


def collect_server_secrets(server: ServerConfig) -> Iterator[str]:
    """Yield the secrets of a server: headers, and variables whose names suggest a secret."""
    yield from server.headers.values()
    yield from server.query.values()
    yield server.oauth_client_secret
    yield server.basic_auth.partition(":")[2]
    yield from collect_environment_secrets(server.env)


def collect_environment_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names suggest a secret, except paths of files."""
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not value.startswith("/"):
            yield value


def collect_config_secrets(config: GatewayConfig) -> Iterator[str]:
    """Yield all secrets of a configuration."""
    for server in config.servers.values():
        yield from collect_server_secrets(server)
    # Servers inherit these variables, and may print them.
    yield from collect_environment_secrets(os.environ)
    yield config.embedding.key
    yield from config.token_keys
    for upstream in config.llm_gateway.upstreams:
        yield from upstream.api_keys
        yield from upstream.headers.values()
