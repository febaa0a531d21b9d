"""Trust on first use: pin each tool's first definition and compare later ones with it.

A fingerprint here covers the definition as the server sent it, independent of the order of keys,
which may differ from start to start. (`Tool.fingerprint` covers what a model sees, where the order
matters.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from toolcrib.errors import InvalidTool
from toolcrib.safety.hidden_text import escape_invisible

PinState = Literal["approved", "changed"]
PinStatus = Literal["new", "same", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Pin:
    """The trusted definition of a tool, and the candidate that waits for approval, if any.

    A tool that was quarantined on first sight has an empty `fingerprint` and `definition`.
    """

    tool: str
    fingerprint: str
    definition: Mapping[str, Any]
    state: PinState = "approved"
    first_seen: float = 0.0
    candidate: Mapping[str, Any] | None = None
    candidate_fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class PinVerdict:
    """How a tool compares with its pin. A tool that is gone has an empty definition."""

    tool: str
    status: PinStatus
    pin: Pin | None
    definition: Mapping[str, Any]
    fingerprint: str


def compute_fingerprint(definition: Mapping[str, Any]) -> str:
    """Return a digest of a definition that does not depend on the order of its keys."""
    try:
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        name = escape_invisible(str(definition.get("name")), 80)
        raise InvalidTool(
            f"tool {name!r}: its definition is not valid JSON and cannot be pinned ({error}); "
            "report this to the maker of the tool"
        ) from error
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def compare_with_pins(
    pins: Mapping[str, Pin], definitions: Iterable[Mapping[str, Any]]
) -> dict[str, PinVerdict]:
    """Return a verdict for each listed or pinned tool, by name; tools that are gone come last.

    If a server lists several definitions under one name, the first changed one decides.
    """
    verdicts: dict[str, PinVerdict] = {}
    for definition in definitions:
        name = definition.get("name")
        if not isinstance(name, str):
            continue
        previous = verdicts.get(name)
        if previous and previous.status != "same":
            continue
        verdicts[name] = _compare_with_pin(name, pins.get(name), definition)
    for name, pin in pins.items():
        if name not in verdicts:
            verdicts[name] = PinVerdict(name, "gone", pin, {}, "")
    return verdicts


def _compare_with_pin(name: str, pin: Pin | None, definition: Mapping[str, Any]) -> PinVerdict:
    fingerprint = compute_fingerprint(definition)
    if pin is None:
        return PinVerdict(name, "new", None, definition, fingerprint)
    status: PinStatus = "same" if fingerprint == pin.fingerprint else "changed"
    return PinVerdict(name, status, pin, definition, fingerprint)


def update_pins(
    verdicts: Iterable[PinVerdict],
    at: float,
    *,
    changed: Literal["block", "warn", "off"] = "block",
    quarantined: Collection[str] = (),
) -> list[Pin]:
    """Return the pins that have to be written after a comparison.

    `changed` is the policy for changed tools: `block` keeps the trusted definition and stores the
    new one as a candidate, `warn` trusts the new one, `off` pins nothing. New tools named in
    `quarantined`, such as those with a scan finding, wait for approval as well.
    """
    if changed == "off":
        return []
    pins = (_update_pin(verdict, at, changed, verdict.tool in quarantined) for verdict in verdicts)
    return [pin for pin in pins if pin is not None]


def _update_pin(verdict: PinVerdict, at: float, changed: str, is_quarantined: bool) -> Pin | None:
    pin, tool = verdict.pin, verdict.tool
    if verdict.status == "gone":
        # The pin stays, so that the tool is checked again if it comes back.
        return None
    if pin is None:
        if is_quarantined:
            return Pin(tool, "", {}, "changed", at, verdict.definition, verdict.fingerprint)
        return Pin(tool, verdict.fingerprint, verdict.definition, first_seen=at)
    if verdict.status == "same":
        if pin.state == "approved":
            return None
        return replace(pin, state="approved", candidate=None, candidate_fingerprint="")
    if changed == "warn" and not is_quarantined:
        return Pin(tool, verdict.fingerprint, verdict.definition, first_seen=pin.first_seen)
    if pin.state == "changed" and pin.candidate_fingerprint == verdict.fingerprint:
        return None
    return replace(
        pin,
        state="changed",
        candidate=verdict.definition,
        candidate_fingerprint=verdict.fingerprint,
    )
