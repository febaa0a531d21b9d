"""OpenAPI descriptions of the HTTP APIs."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Literal

from toolcrib import __version__


def load_openapi(api: Literal["admin", "llm"]) -> dict[str, Any]:
    """Return the description of an API, with the version of this package."""
    text = files(__package__).joinpath(f"openapi_{api}.json").read_text(encoding="utf-8")
    description: dict[str, Any] = json.loads(text)
    description["info"]["version"] = __version__
    return description
