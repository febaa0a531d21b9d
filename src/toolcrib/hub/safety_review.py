"""Review the definitions of a server: which are trusted, which wait for approval, and what to report.

A `ScanRecord` keeps what the safety scan found, so that a known definition is not scanned again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final, Literal, Self

from toolcrib import __version__
from toolcrib.config.settings import SafetyConfig
from toolcrib.hub.directory import ToolDefinition
from toolcrib.safety.detector import compute_detector_version
from toolcrib.safety.hidden_text import SafetyFinding
from toolcrib.safety.pinning import Pin, PinVerdict, compare_with_pins, compute_fingerprint, update_pins
from toolcrib.safety.scan import add_references, list_mentions, scan_definition

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


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """The fingerprints of a server's definitions, and what a scan found in each, by tool name.

    `mentions` are words that may name tools of other servers. Which ones do is checked each time. A record
    that another version of the scanner made is not current; its definitions are scanned again when the
    server lists them, and not at a start, because that takes about 10 milliseconds for each.
    """

    fingerprints: Mapping[str, str] = field(default_factory=dict)
    findings: Mapping[str, tuple[SafetyFinding, ...]] = field(default_factory=dict)
    mentions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    is_current: bool = True

    def covers(self, definitions: Iterable[ToolDefinition]) -> bool:
        """Return whether the record has all of these definitions, given that it was made for them."""
        return all(definition.name in self.fingerprints for definition in definitions)

    def find_suspicious(
        self, definitions: Iterable[ToolDefinition], other_names: Container[str]
    ) -> dict[str, tuple[SafetyFinding, ...]]:
        """Return the findings of all suspicious tools, by name; `other_names` are tools of other servers."""
        found: dict[str, tuple[SafetyFinding, ...]] = {}
        for definition in definitions:
            name = definition.name
            mentioned = frozenset(word for word in self.mentions.get(name, ()) if word in other_names)
            findings = self.findings.get(name, ())
            if mentioned:
                findings = add_references(definition.raw, findings, mentioned)
            if findings:
                found[name] = findings
        return found

    def encode(self) -> str:
        """Return the record as JSON."""
        fields = {
            "version": _scanner_version(),
            "fingerprints": dict(self.fingerprints),
            "findings": {
                name: [[one.category, one.location, one.message, one.severity] for one in found]
                for name, found in self.findings.items()
            },
            "mentions": {name: sorted(words) for name, words in self.mentions.items()},
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """Return a stored record; None if there is none."""
        if not text:
            return None
        fields: dict[str, Any] = json.loads(text)
        findings = {name: tuple(SafetyFinding(*one) for one in found) for name, found in fields["findings"].items()}
        mentions = {name: frozenset(words) for name, words in fields["mentions"].items()}
        return cls(fields["fingerprints"], findings, mentions, fields["version"] == _scanner_version())


def _scanner_version() -> str:
    return f"{__version__} {compute_detector_version()}"


@dataclass(frozen=True, slots=True)
class OtherToolNames:
    """The tool names of all other servers, given how many servers have each name.

    `listed` are the names that the server itself has in `counts`; its new names are never those of others.
    """

    counts: Mapping[str, int]
    listed: Container[str]
    new: Container[str]

    def __contains__(self, name: object) -> bool:
        others = self.counts.get(name, 0) - (name in self.listed) if isinstance(name, str) else 0
        return others > 0 and name not in self.new


def scan_definitions(definitions: Iterable[ToolDefinition], known: ScanRecord) -> ScanRecord:
    """Return a record of these definitions; those that `known` has are not scanned again if it is current."""
    fingerprints: dict[str, str] = {}
    findings: dict[str, tuple[SafetyFinding, ...]] = {}
    mentions: dict[str, frozenset[str]] = {}
    for definition in definitions:
        name = definition.name
        fingerprints[name] = compute_fingerprint(definition.raw)
        is_known = known.is_current and known.fingerprints.get(name) == fingerprints[name]
        found = known.findings.get(name, ()) if is_known else scan_definition(definition.raw)
        words = known.mentions.get(name, frozenset()) if is_known else list_mentions(definition.raw)
        if found:
            findings[name] = found
        if words:
            mentions[name] = words
    return ScanRecord(fingerprints, findings, mentions)
