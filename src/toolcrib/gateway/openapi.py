"""What the OpenAPI descriptions of all doors have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib import __version__


def described(title: str, paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """A whole description: these paths, behind the keys that the guard asks for."""
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }
