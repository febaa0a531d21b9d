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
from toolcrib.safety.definition_diff import difference
from toolcrib.safety.display import visible
from toolcrib.safety.pin import Pin

__all__ = ["Verdict", "difference", "fingerprint", "judge", "repinned"]

VerdictKind = Literal["new", "same", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a tool stands to its pin. One that is gone has an empty definition."""

    tool: str
    kind: VerdictKind
    pin: Pin | None
    definition: Mapping[str, Any]
    fingerprint: str


def fingerprint(definition: Mapping[str, Any]) -> str:
    """A digest of a definition, the same for every order of its keys."""
    try:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        name = visible(str(definition.get("name")), 80)
        raise InvalidTool(
            f"tool {name!r}: its definition is not JSON and cannot be pinned ({fault}); "
            "ask its maker for a plainer one"
        ) from fault
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def judge(pins: Mapping[str, Pin], definitions: Iterable[Mapping[str, Any]]) -> dict[str, Verdict]:
    """How each tool that is there, or was, stands to its pin; by name, those gone at the end.

    Where a server gives one name to several definitions, one that has changed decides.
    """
    verdicts: dict[str, Verdict] = {}
    for definition in definitions:
        name = definition.get("name")
        if not isinstance(name, str):
            continue
        known = verdicts.get(name)
        if known and known.kind != "same":
            continue
        verdicts[name] = _verdict(name, pins.get(name), definition)
    for name, pin in pins.items():
        if name not in verdicts:
            verdicts[name] = Verdict(name, "gone", pin, {}, "")
    return verdicts


def _verdict(name: str, pin: Pin | None, definition: Mapping[str, Any]) -> Verdict:
    found = fingerprint(definition)
    if pin is None:
        return Verdict(name, "new", None, definition, found)
    kind: VerdictKind = "same" if found == pin.fingerprint else "changed"
    return Verdict(name, kind, pin, definition, found)


def repinned(
    verdicts: Iterable[Verdict],
    at: float,
    *,
    changed: Literal["block", "warn", "off"] = "block",
    held: Collection[str] = (),
) -> list[Pin]:
    """The pins that have to be written after these verdicts.

    `changed` is the policy for tools that have changed: `block` keeps what was trusted and lets
    the new definition wait, `warn` trusts it, `off` pins nothing. New tools named in `held` wait
    for approval as well, such as those that a scan has found fault with.
    """
    if changed == "off":
        return []
    found = (_repinned(verdict, at, changed, verdict.tool in held) for verdict in verdicts)
    return [pin for pin in found if pin is not None]


def _repinned(verdict: Verdict, at: float, changed: str, is_held: bool) -> Pin | None:
    pin = verdict.pin
    if verdict.kind == "gone":
        # Kept: a tool that goes and comes back is held against what it said before.
        return None
    if pin is None:
        if is_held:
            return Pin(verdict.tool, "", {}, "changed", at, verdict.definition, verdict.fingerprint)
        return Pin(verdict.tool, verdict.fingerprint, verdict.definition, first_seen=at)
    if verdict.kind == "same":
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
