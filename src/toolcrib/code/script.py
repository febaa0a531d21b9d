"""One script: its calls, the calls that wait for approval, and the results to replay.

A script that reaches calls which need an approval runs to its end with placeholders in place of their
results. The user approves all these calls together, and the script runs again: finished calls are not
repeated, their results are replayed. Only reads after the first of these calls are repeated, because they may
depend on it. A placeholder in the arguments of a later call matches any value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolcrib.core.stubs import unwrap_result
from toolcrib.core.tool import Tool
from toolcrib.errors import CallError, CallRefused

MAX_APPROVAL_ROUNDS: Final = 5
_MAX_DEPTH: Final = 6
_PLACEHOLDER_BASE: Final = -9_007_199_000_000_000


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A call of a tool with valid arguments."""

    tool: Tool
    arguments: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Identifies equal calls."""
        return f"{self.tool.id} {json.dumps(self.arguments, sort_keys=True, default=str)}"


class ScriptHost(Protocol):
    """Runs the calls of a script with the rights of its caller."""

    def find_tool(self, server: str, name: str) -> Tool:
        """Return the tool with these identifiers, or raise `CallError` with the nearest names."""

    def find_tool_by_name(self, name: str) -> Tool:
        """Return the tool with this public name, or raise `CallError` with the nearest names."""

    def validate(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return valid arguments, or raise `CallError`."""

    def needs_approval(self, tool: Tool) -> bool:
        """Return whether the user has to approve calls of this tool."""

    async def call(self, call: ScriptCall) -> Any:
        """Run a call and return its value, or raise `CallError`."""

    async def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        """Return tools for a query, each with its stub."""


@dataclass
class ScriptRun:
    """The state of a script over its runs."""

    host: ScriptHost
    max_calls: int
    # The results of finished calls, in order, by the key of the call.
    results: dict[str, list[Any]] = field(default_factory=dict)
    # The approvals that no call has used yet.
    approved: list[ScriptCall] = field(default_factory=list)
    # The calls of the last run that wait for approval.
    pending: list[ScriptCall] = field(default_factory=list)
    call_count: int = 0
    _positions: Counter[str] = field(default_factory=Counter)
    _placeholders: set[Any] = field(default_factory=set)

    def start(self) -> None:
        """Prepare the next run."""
        self._positions.clear()
        self.call_count = sum(map(len, self.results.values()))
        self.pending = []

    def approve_pending(self) -> None:
        """Approve the calls that the last run has collected."""
        self.approved += self.pending

    async def call(self, tool: Tool, arguments: Mapping[str, Any]) -> Any:
        """Return the result of a call: replayed, new, or a placeholder if it waits for approval."""
        call = ScriptCall(tool, self.host.validate(tool, arguments))
        position = self._positions[call.key]
        self._positions[call.key] += 1
        replayed = self.results.get(call.key, [])
        if position < len(replayed):
            return _take_outcome(replayed[position])
        # A write after one that waits may depend on it.
        is_collected = self.host.needs_approval(tool) or (self.pending and not tool.read_only)
        if is_collected and not self._use_approval(call):
            self.pending.append(call)
            self._check_count(len(self.pending))
            return self._build_placeholder(tool.output_schema)
        self.call_count += 1
        self._check_count(self.call_count)
        if self.pending and self._has_placeholder(call):
            return self._build_placeholder(tool.output_schema)
        try:
            outcome = await self.host.call(call)
        except CallError as error:
            outcome = error
        if not (self.pending and tool.read_only):
            self.results.setdefault(call.key, []).append(outcome)
        return _take_outcome(outcome)

    def _check_count(self, count: int) -> None:
        if count > self.max_calls:
            raise CallRefused(f"a script may make at most {self.max_calls} calls; do less in one script")

    def _has_placeholder(self, call: ScriptCall) -> bool:
        arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
        return any(str(placeholder) in arguments for placeholder in self._placeholders)

    def _use_approval(self, call: ScriptCall) -> bool:
        for number, approved in enumerate(self.approved):
            if approved.tool.id == call.tool.id and self._matches(approved.arguments, call.arguments):
                del self.approved[number]
                return True
        return False

    def _matches(self, approved: Any, actual: Any) -> bool:
        if isinstance(approved, Mapping) and isinstance(actual, Mapping):
            return approved.keys() == actual.keys() and all(
                self._matches(value, actual[name]) for name, value in approved.items()
            )
        if isinstance(approved, list) and isinstance(actual, list):
            return len(approved) == len(actual) and all(map(self._matches, approved, actual))
        if isinstance(approved, str) and any(isinstance(one, str) and one in approved for one in self._placeholders):
            return isinstance(actual, str)
        is_placeholder = isinstance(approved, int | float) and approved in self._placeholders
        return is_placeholder or (type(approved) is type(actual) and approved == actual)

    def _build_placeholder(self, schema: Mapping[str, Any]) -> Any:
        """Return a value that matches an output schema, with a unique value in each place."""
        return unwrap_result(self._fill(schema, 0) if schema else {})

    def _fill(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, Mapping) and isinstance(schema.get("anyOf"), list) and schema["anyOf"]:
            schema = schema["anyOf"][0]
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object" or (isinstance(schema, Mapping) and "properties" in schema):
            members = schema.get("properties") if depth < _MAX_DEPTH else None
            return {name: self._fill(member, depth + 1) for name, member in (members or {}).items()}
        if kind == "array":
            return []
        if kind == "boolean":
            return False
        number = len(self._placeholders) + 1
        placeholder: Any = f"‹result {number}›" if kind not in ("integer", "number") else _PLACEHOLDER_BASE - number
        self._placeholders.add(placeholder)
        return placeholder


def _take_outcome(outcome: Any) -> Any:
    if isinstance(outcome, CallError):
        raise outcome
    return outcome
