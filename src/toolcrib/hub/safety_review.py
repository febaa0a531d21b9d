"""Review the definitions of a server: which are trusted, which wait for approval, and what to report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

from toolcrib.config.settings import SafetyConfig
from toolcrib.hub.directory import ToolDefinition
from toolcrib.safety.hidden_text import SafetyFinding
from toolcrib.safety.pinning import Pin, PinVerdict, compare_with_pins, update_pins

EventKind = Literal["quarantined", "changed", "suspicious"]

CHANGED_REASON: Final = "its definition is not the approved one"
HOSTILE_REASON: Final = "its definition looks hostile"
NEW_REASON: Final = "it is new"
SIMILAR_REASON: Final = "it is new, and its name is similar to that of a quarantined tool"

_MIN_NAME_SIMILARITY: Final = 0.75
_SEPARATORS: Final = re.compile(r"[\W_\d]+")

Findings = Mapping[str, tuple[SafetyFinding, ...]]


@dataclass(frozen=True, slots=True)
class SafetyEvent:
    """Something that a person should know about a tool. It is reported once."""

    kind: EventKind
    tool: str
    reason: str


@dataclass(frozen=True, slots=True)
class SafetyReview:
    """The outcome of a review.

    `quarantined` maps tools to the reasons why they wait for approval. `changed` are tools that are
    used although their definition is not the approved one. `pins` have to be stored.
    """

    quarantined: Mapping[str, str]
    changed: frozenset[str] = frozenset()
    pins: tuple[Pin, ...] = ()
    events: tuple[SafetyEvent, ...] = ()


def review_definitions(
    safety: SafetyConfig,
    definitions: Iterable[ToolDefinition],
    findings: Findings,
    pins: Mapping[str, Pin],
    seen_at: float,
) -> SafetyReview:
    """Return which tools of a server are trusted. `findings` are those of the scanner, by tool."""
    hostile = {name: found[0].message for name, found in findings.items() if found[0].severity == "high"}
    if safety.changed == "off":
        blocked = hostile if safety.scan == "block" else {}
        events = [SafetyEvent("suspicious", name, reason) for name, reason in hostile.items()]
        return SafetyReview(dict.fromkeys(blocked, HOSTILE_REASON), events=tuple(events))
    verdicts = compare_with_pins(pins, (tool.raw for tool in definitions))
    quarantined = _find_quarantined(safety, verdicts, hostile.keys(), is_known=bool(pins))
    changed = frozenset(
        name for name, verdict in verdicts.items() if verdict.status == "changed" and name not in quarantined
    )
    updated = update_pins(verdicts.values(), seen_at, changed=safety.changed, quarantined=quarantined.keys())
    events = []
    for pin in updated:
        if pin.tool in hostile:
            events.append(SafetyEvent("suspicious", pin.tool, hostile[pin.tool]))
        if pin.tool in quarantined:
            events.append(SafetyEvent("quarantined", pin.tool, quarantined[pin.tool]))
        elif pin.tool in changed:
            events.append(SafetyEvent("changed", pin.tool, CHANGED_REASON))
    return SafetyReview(quarantined, changed, tuple(updated), tuple(events))


def _find_quarantined(
    safety: SafetyConfig, verdicts: Mapping[str, PinVerdict], hostile: Iterable[str], *, is_known: bool
) -> dict[str, str]:
    """Return the tools that wait for approval, with reasons."""
    suspects = frozenset(hostile)
    quarantined: dict[str, str] = {}
    new: list[str] = []
    for name, verdict in verdicts.items():
        was_trusted = verdict.pin is not None and bool(verdict.pin.fingerprint)
        if verdict.status == "new":
            new.append(name)
        elif verdict.status == "changed" and (safety.changed == "block" or not was_trusted):
            # A tool that never was trusted waits for approval, whatever the settings are now.
            quarantined[name] = CHANGED_REASON if was_trusted else NEW_REASON
        if name in suspects and verdict.status in ("new", "changed") and safety.scan == "block":
            quarantined[name] = HOSTILE_REASON
    if is_known and safety.new != "trust":
        for name in new:
            if name in suspects:
                quarantined[name] = HOSTILE_REASON
            elif any(_are_similar(name, other) for other in quarantined if other not in new):
                quarantined[name] = SIMILAR_REASON
            elif safety.new == "hold":
                quarantined[name] = NEW_REASON
    for name, reason in quarantined.items():
        if reason == NEW_REASON and name in suspects:
            quarantined[name] = HOSTILE_REASON
    return quarantined


def _are_similar(name: str, other: str) -> bool:
    """Return whether a model could take one name for the other, as `send_mail_v2` for `send_mail`."""
    first, second = (_SEPARATORS.sub("", text).lower() for text in (name, other))
    if not first or not second:
        return False
    if first.startswith(second) or second.startswith(first):
        return min(len(first), len(second)) >= 4
    return SequenceMatcher(None, first, second).ratio() >= _MIN_NAME_SIMILARITY
