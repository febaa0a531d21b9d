"""OpenAPI descriptions of the HTTP APIs."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final, Literal

from toolcrib import __version__

# The description of the admin API is in two files, because it is long.
_FILES: Final[dict[str, tuple[str, ...]]] = {"admin": ("admin", "activity"), "llm": ("llm",)}


def load_openapi(api: Literal["admin", "llm"]) -> dict[str, Any]:
    """Return the description of an API, with the version of this package."""
    description, *parts = (_load_file(name) for name in _FILES[api])
    for part in parts:
        description["paths"] |= part["paths"]
        description["components"]["schemas"] |= part["components"]["schemas"]
    description["info"]["version"] = __version__
    return description


def _load_file(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"openapi_{name}.json").read_text(encoding="utf-8")
    description: dict[str, Any] = json.loads(text)
    return description
