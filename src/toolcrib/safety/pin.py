"""A pin: the definition of a tool that is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

PinState = Literal["approved", "changed"]


@dataclass(frozen=True, slots=True)
class Pin:
    """The definition of a tool that is trusted, and the one that waits for approval, if any.

    A tool that was held back the first time it was seen has an empty `fingerprint` and
    `definition`: nothing of it is trusted yet.
    """

    tool: str
    fingerprint: str
    definition: Mapping[str, Any]
    state: PinState = "approved"
    first_seen: float = 0.0
    candidate: Mapping[str, Any] | None = None
    candidate_fingerprint: str = ""
