"""Trust on first use: what a tool said first is pinned; what it says later is held against that.

Fingerprints here are of the definition as the server wrote it, whatever the order of its keys:
servers may order them anew at each start. (`Tool.fingerprint` is of what a model is shown, where
order counts.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from toolcrib.errors import InvalidTool
from toolcrib.safety.definition_diff import render_definition_diff
from toolcrib.safety.display import escape_invisible
from toolcrib.safety.pin import Pin

__all__ = [
    "PinVerdict",
    "compare_with_pins",
    "compute_fingerprint",
    "render_definition_diff",
    "update_pins",
]

PinStatus = Literal["new", "same", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class PinVerdict:
    """How a tool stands to its pin. One that is gone has an empty definition."""

    tool: str
    status: PinStatus
    pin: Pin | None
    definition: Mapping[str, Any]
    fingerprint: str


def compute_fingerprint(definition: Mapping[str, Any]) -> str:
    """A digest of a definition, the same for every order of its keys."""
    try:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        name = escape_invisible(str(definition.get("name")), 80)
        raise InvalidTool(
            f"tool {name!r}: its definition is not JSON and cannot be pinned ({fault}); "
            "ask its maker for a plainer one"
        ) from fault
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def compare_with_pins(
    pins: Mapping[str, Pin], definitions: Iterable[Mapping[str, Any]]
) -> dict[str, PinVerdict]:
    """How each tool that is there, or was, stands to its pin; by name, those gone at the end.

    Where a server gives one name to several definitions, one that has changed decides.
    """
    verdicts: dict[str, PinVerdict] = {}
    for definition in definitions:
        name = definition.get("name")
        if not isinstance(name, str):
            continue
        known = verdicts.get(name)
        if known and known.status != "same":
            continue
        verdicts[name] = _compare_with_pin(name, pins.get(name), definition)
    for name, pin in pins.items():
        if name not in verdicts:
            verdicts[name] = PinVerdict(name, "gone", pin, {}, "")
    return verdicts


def _compare_with_pin(name: str, pin: Pin | None, definition: Mapping[str, Any]) -> PinVerdict:
    found = compute_fingerprint(definition)
    if pin is None:
        return PinVerdict(name, "new", None, definition, found)
    kind: PinStatus = "same" if found == pin.fingerprint else "changed"
    return PinVerdict(name, kind, pin, definition, found)


def update_pins(
    verdicts: Iterable[PinVerdict],
    at: float,
    *,
    changed: Literal["block", "warn", "off"] = "block",
    quarantined: Collection[str] = (),
) -> list[Pin]:
    """The pins that have to be written after these verdicts.

    `changed` is the policy for tools that have changed: `block` keeps what was trusted and lets
    the new definition wait, `warn` trusts it, `off` pins nothing. New tools named in `held` wait
    for approval as well, such as those that a scan has found fault with.
    """
    if changed == "off":
        return []
    found = (_update_pin(verdict, at, changed, verdict.tool in quarantined) for verdict in verdicts)
    return [pin for pin in found if pin is not None]


def _update_pin(verdict: PinVerdict, at: float, changed: str, is_held: bool) -> Pin | None:
    pin = verdict.pin
    if verdict.status == "gone":
        # Kept: a tool that goes and comes back is held against what it said before.
        return None
    if pin is None:
        if is_held:
            return Pin(verdict.tool, "", {}, "changed", at, verdict.definition, verdict.fingerprint)
        return Pin(verdict.tool, verdict.fingerprint, verdict.definition, first_seen=at)
    if verdict.status == "same":
        if pin.state == "approved":
            return None
        return replace(pin, state="approved", candidate=None, candidate_fingerprint="")
    if changed == "warn" and not is_held:
        return Pin(verdict.tool, verdict.fingerprint, verdict.definition, first_seen=pin.first_seen)
    if pin.state == "changed" and pin.candidate_fingerprint == verdict.fingerprint:
        return None
    return replace(
        pin,
        state="changed",
        candidate=verdict.definition,
        candidate_fingerprint=verdict.fingerprint,
    )
