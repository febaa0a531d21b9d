"""Keep what the safety scan found, so that a known definition is not scanned again."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from toolcrib import __version__
from toolcrib.hub.directory import ToolDefinition
from toolcrib.safety.hidden_text import SafetyFinding
from toolcrib.safety.pinning import compute_fingerprint
from toolcrib.safety.scan import list_mentions, scan_definition


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """The fingerprints of a server's definitions, and what a scan found in each, by tool name.

    `mentions` are words that may name tools of other servers. Which ones do is checked each time.
    """

    fingerprints: Mapping[str, str] = field(default_factory=dict)
    findings: Mapping[str, tuple[SafetyFinding, ...]] = field(default_factory=dict)
    mentions: Mapping[str, frozenset[str]] = field(default_factory=dict)

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
            findings = scan_definition(definition.raw, mentioned) if mentioned else self.findings.get(name, ())
            if findings:
                found[name] = findings
        return found

    def encode(self) -> str:
        """Return the record as JSON."""
        fields = {
            "version": __version__,
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
        """Return a stored record; None if there is none, or if another version of the scanner made it."""
        fields: dict[str, Any] = json.loads(text) if text else {}
        if fields.get("version") != __version__:
            return None
        findings = {name: tuple(SafetyFinding(*one) for one in found) for name, found in fields["findings"].items()}
        mentions = {name: frozenset(words) for name, words in fields["mentions"].items()}
        return cls(fields["fingerprints"], findings, mentions)


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
    """Return a record of these definitions; those that `known` has are not scanned again."""
    fingerprints: dict[str, str] = {}
    findings: dict[str, tuple[SafetyFinding, ...]] = {}
    mentions: dict[str, frozenset[str]] = {}
    for definition in definitions:
        name = definition.name
        fingerprints[name] = compute_fingerprint(definition.raw)
        is_known = known.fingerprints.get(name) == fingerprints[name]
        found = known.findings.get(name, ()) if is_known else scan_definition(definition.raw)
        words = known.mentions.get(name, frozenset()) if is_known else list_mentions(definition.raw)
        if found:
            findings[name] = found
        if words:
            mentions[name] = words
    return ScanRecord(fingerprints, findings, mentions)
