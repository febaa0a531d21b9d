"""shipit's `tool_search`, which answers with a shortlist as text, of releases 1.0 and 2.2.

Release 1.0 (`ToolSearchTool`) ranks by spelling similarity. Release 2.2 (`LoadingToolSearchTool`)
ranks by shared words, weighted by rarity, and loads the deferred tools it finds: their full
definitions are advertised from the next step on.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from toolcrib.core.tool import Tool
from toolcrib.search.lexical import fuzzy
from toolcrib.session.disclosure import Activation, Disclosure

DESCRIPTION = (
    "Search the current agent's available tools and return a ranked shortlist of the best matches "
    "for a task. Use this when many tools are available and you want to confirm the right one "
    "before calling it."
)
LOADING_DESCRIPTION = (
    "Search the current agent's available tools and return a ranked shortlist of the best matches "
    "for a task. Use this when many tools are available and no loaded tool fits. Call an already "
    "loaded matching tool directly instead of searching again."
)
QUERY_DESCRIPTION = "What you are trying to do, in plain language."
LIMIT_DESCRIPTION = "Maximum number of matching tools to return (1-{most}, default {default})."
QUERY_MISSING = "Error: `query` is required. Describe what you are trying to do."
NO_TOOLS = "No tools are currently registered on this agent."
NO_MATCH = "No tools matched '{query}'. Try rephrasing or broadening the query."
BEST_TOOLS = "Best tools for '{query}' (ranked by relevance):"
NO_DESCRIPTION = "No description provided."
WHEN_TO_USE_LINE = "   ↳ when to use: {hint}"
LOADED = "Loaded and now directly callable (full definitions available from your next step):"
ALREADY_LOADED = "Already loaded; call directly without another search: {names}"

PROMPT = (
    "You have too many tools to compare one by one. Start a task with one call of `{name}`: "
    "describe in plain language what should happen, not what a tool might be called. Then call the "
    "best tool in the list. Do not repeat a search; the result stays the same."
)
HINT = "Call this first if it is unclear which tool fits the task, and describe the task."
SEARCH_FIRST = "Your first call must be `{name}`, to find the tool for this task. Continue after that.\n\nTask: {task}"
WHEN_WORTH_IT = (
    ("a few clearly different tools", False),
    ("fifteen or more overlapping tools", True),
    ("MCP servers whose tools have similar names", True),
    ("an agent that plans with alternatives", True),
    ("a chat that calls no tools", False),
)

AVAILABLE_TOOLS_KEY = "available_tools"
DEFERRED_NAMES_KEY = "deferred_tool_names"
LOADED_NAMES_KEY = "loaded_tool_names"
SCHEMAS_KEY = "tool_schemas_by_name"

# The tools that release 2.2 never defers by default.
CORE_TOOLS = frozenset({
    "ask_user", "bash", "describe_binding", "edit_file", "execute_code", "glob_files", "grep_files", "memory",
    "read_file", "todo", "tool_search", "web_search", "write_file",
})  # fmt: skip

NAME_WEIGHT = 3
EXACT_NAME_BONUS = 100
MAX_DESCRIPTION_CHARS = 400
MAX_HINT_CHARS = 300

_CAMEL_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_ACCESS_WORDS = {True: "read only", False: "action write mutate", None: ""}


class ShipitContext(Protocol):
    """The context that a running agent passes to its tools."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """The state shared by the tools of one run."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's answer: the text for the model, and the same as data."""

    text: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShipitEntry:
    """One tool as the runtime lists it; missing fields are empty."""

    name: str
    description: str
    prompt_instructions: str
    category: str
    server: str
    connection_id: str
    connection_state: str
    discovery_terms: str
    read_only: bool | None

    @classmethod
    def from_dict(cls, tool: Mapping[str, Any]) -> ShipitEntry:
        """Return the entry of a tool from the runtime's list."""
        names = [field.name for field in fields(cls) if field.name != "read_only"]
        texts = {name: str(tool.get(name) or "") for name in names}
        read_only = tool.get("read_only")
        return cls(**texts, read_only=read_only if isinstance(read_only, bool) else None)


@dataclass(frozen=True, slots=True)
class ShipitMatch:
    """A tool and its score."""

    entry: ShipitEntry
    score: float


def find_free_name(names: Collection[str], name: str = "search_tools") -> str:
    """Return an unused name for the search tool, with underscores prepended as needed."""
    while name in names:
        name = f"_{name}"
    return name


class ToolSearchTool:
    """The tool of release 1.0, which ranks all tools by spelling similarity."""

    default_description = DESCRIPTION
    prompt_instructions = HINT
    match_fields: tuple[str, ...] = ("name", "description", "prompt_instructions")
    empty_query: Mapping[str, Any] = {"error": "empty_query"}

    def __init__(
        self,
        *,
        name: str = "tool_search",
        description: str | None = None,
        prompt: str | None = None,
        max_limit: int = 10,
        default_limit: int = 5,
        token_bonus: float = fuzzy.TOKEN_BONUS,
    ) -> None:
        self.name = name
        self.description = description or self.default_description
        self.prompt = prompt or PROMPT.format(name=name)
        self.max_limit = max_limit
        self.default_limit = default_limit
        self.token_bonus = token_bonus

    def schema(self) -> dict[str, Any]:
        """Return the tool as an OpenAI function."""
        limit = LIMIT_DESCRIPTION.format(most=self.max_limit, default=self.default_limit)
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": QUERY_DESCRIPTION},
                        "limit": {"type": "integer", "description": limit},
                    },
                    "required": ["query"],
                },
            },
        }

    def search_first(self, task: str) -> str:
        """Return a prompt that makes a weak model call this tool first."""
        return SEARCH_FIRST.format(name=self.name, task=task)

    def run(self, context: ShipitContext, **arguments: Any) -> ToolOutput:
        """Answer one call with the shortlist; never raises, whatever the arguments."""
        query = str(arguments.get("query") or "").strip()
        if not query:
            return ToolOutput(QUERY_MISSING, {**self.empty_query, "matches": []})
        entries = [ShipitEntry.from_dict(tool) for tool in context.state.get(AVAILABLE_TOOLS_KEY) or ()]
        if not entries:
            return ToolOutput(NO_TOOLS, {"query": query, "matches": []})
        limit = self._read_limit(arguments.get("limit"))
        best = self._rank(query, entries, context)[:limit]
        matches = [match for match in best if match.score > fuzzy.MIN_SCORE]
        if not matches:
            rows = [self._render_row(match) for match in best]
            return ToolOutput(NO_MATCH.format(query=query), {"query": query, "matches": rows})
        lines = [BEST_TOOLS.format(query=query)]
        for number, match in enumerate(matches, 1):
            lines += self._render_lines(number, match)
        metadata = {
            "query": query,
            "limit": limit,
            "total_candidates": len(entries),
            "matches": [self._render_row(match) for match in matches],
        }
        loading_lines, loading = self._load(context, matches)
        return ToolOutput("\n".join([*lines, *loading_lines]), {**metadata, **loading})

    def _read_limit(self, argument: Any) -> int:
        """Return the number of tools to list; the default if the argument is not a number."""
        try:
            limit = int(argument or self.default_limit)
        except OverflowError:
            limit = self.max_limit if argument > 0 else 1
        except (TypeError, ValueError):
            limit = self.default_limit
        return max(1, min(limit, self.max_limit))

    def _rank(self, query: str, entries: Sequence[ShipitEntry], context: ShipitContext) -> list[ShipitMatch]:
        return _sort_by_score(
            ShipitMatch(entry, fuzzy.score_haystack(query, build_haystack(entry), self.token_bonus))
            for entry in entries
        )

    def _render_row(self, match: ShipitMatch) -> dict[str, Any]:
        fields = {field: getattr(match.entry, field) for field in self.match_fields}
        return {**fields, "score": match.score}

    def _render_lines(self, number: int, match: ShipitMatch) -> list[str]:
        entry = match.entry
        return _render_entry(number, entry, f"{match.score}", entry.description, entry.prompt_instructions)

    def _load(self, context: ShipitContext, matches: Sequence[ShipitMatch]) -> tuple[list[str], dict[str, list[str]]]:
        """Load deferred tools; return text and data about it. Release 1.0 loads nothing."""
        return [], {}


class LoadingToolSearchTool(ToolSearchTool):
    """The tool of release 2.2, which ranks by shared words and loads the deferred tools it finds.

    It reads the names of deferred tools and the schemas from the state, and appends to the state's
    list of loaded tools. It never lists itself.
    """

    default_description = LOADING_DESCRIPTION
    match_fields = (
        *ToolSearchTool.match_fields,
        "category",
        "read_only",
        "connection_id",
        "connection_state",
        "server",
    )
    empty_query: Mapping[str, Any] = {"error": "empty_query", "ok": False}

    def select_deferred(self, names: Iterable[str], setting: bool | Iterable[str]) -> frozenset[str]:
        """Return the tools to defer: none (False), all but the core (True), or the named ones.

        The search tool is never deferred.
        """
        named = frozenset() if isinstance(setting, bool) else frozenset(setting)
        pinned = CORE_TOOLS | {self.name} if isinstance(setting, bool) else frozenset({self.name})
        disclosure = Disclosure(Activation.parse(setting is True), pinned)
        tools = (Tool(name, policy="always" if name in named else "automatic") for name in names)
        return frozenset(tool.name for tool in disclosure.plan(tools).deferred_tools)

    def _rank(self, query: str, entries: Sequence[ShipitEntry], context: ShipitContext) -> list[ShipitMatch]:
        scores = score_overlap(query, entries)
        ranked = _sort_by_score(
            ShipitMatch(entry, score) for entry, score in zip(entries, scores, strict=True) if entry.name != self.name
        )
        return [match for match in ranked if _is_exact_name(query, match.entry)] or ranked

    def _render_lines(self, number: int, match: ShipitMatch) -> list[str]:
        entry = match.entry
        score = "; ".join(filter(None, (f"{match.score:.3f}", ", ".join(_entry_details(entry)))))
        description = entry.description[:MAX_DESCRIPTION_CHARS]
        hint = entry.prompt_instructions[:MAX_HINT_CHARS]
        return _render_entry(number, entry, score, description, hint)

    def _load(self, context: ShipitContext, matches: Sequence[ShipitMatch]) -> tuple[list[str], dict[str, list[str]]]:
        """Load the deferred tools among the matches."""
        deferred = context.state.get(DEFERRED_NAMES_KEY) or ()
        schemas = context.state.get(SCHEMAS_KEY) or {}
        loaded = list(context.state.get(LOADED_NAMES_KEY) or ())
        names = [match.entry.name for match in matches]
        already_loaded = [name for name in names if name in loaded]
        newly_loaded = [name for name in names if name in deferred and name not in loaded]
        lines = []
        if newly_loaded:
            context.state[LOADED_NAMES_KEY] = [*loaded, *newly_loaded]
            lines += ["", LOADED, *(f"- {render_signature(name, schemas.get(name))}" for name in newly_loaded)]
        if already_loaded:
            lines.append(ALREADY_LOADED.format(names=", ".join(already_loaded)))
        return lines, {"loaded": newly_loaded, "already_loaded": already_loaded}


def score_overlap(query: str, entries: Sequence[ShipitEntry]) -> list[float]:
    """Return the score of each entry: shared words, weighted by rarity, name words times three."""
    query_words = _split_words(query)
    entry_words = [_split_words(*_corpus_texts(entry)) for entry in entries]
    frequency = Counter(word for words in entry_words for word in words)
    weights = {word: math.log(1 + len(entries) / (1 + frequency[word])) for word in query_words}
    scores = []
    for entry, words in zip(entries, entry_words, strict=True):
        in_name = _split_words(entry.name)
        shared = query_words & (words | _split_words(*_connection_texts(entry)))
        # `fsum` returns the same digits for every order of the set.
        score = math.fsum(weights[word] * (NAME_WEIGHT if word in in_name else 1) for word in shared)
        scores.append(score + EXACT_NAME_BONUS * _is_exact_name(query, entry))
    return scores


def render_signature(name: str, schema: Mapping[str, Any] | None) -> str:
    """Return how to call a tool, in one line: `name(required: type, optional?: type)`."""
    if not schema:
        return name
    parameters = _mapping_or_empty(schema.get("function")).get("parameters")
    return f"{name}({render_parameters(_mapping_or_empty(parameters))})"


def render_parameters(schema: Mapping[str, Any]) -> str:
    """Return the parameters of a JSON Schema in one line."""
    required = schema.get("required") or ()
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_mapping_or_empty(inner).get('type', 'any')}"
        for name, inner in _mapping_or_empty(schema.get("properties")).items()
    )


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one: schemas may be malformed."""
    return value if isinstance(value, Mapping) else {}


def advertised_schemas(
    schemas: Mapping[str, Mapping[str, Any]], deferred: Iterable[str], loaded: Iterable[str]
) -> list[Mapping[str, Any]]:
    """Return the schemas of one step: those not deferred, then the loaded ones in order of loading.

    Loading appends, so prompt caches keep their prefix.
    """
    deferred_names = set(deferred)
    resident = [schema for name, schema in schemas.items() if name not in deferred_names]
    return resident + [schemas[name] for name in loaded if name in deferred_names and name in schemas]


def _sort_by_score(matches: Iterable[ShipitMatch]) -> list[ShipitMatch]:
    return sorted(matches, key=lambda match: -match.score)


def _render_entry(number: int, entry: ShipitEntry, score: str, description: str, hint: str) -> list[str]:
    line = f"{number}. {entry.name} (score={score}) — {description or NO_DESCRIPTION}"
    return [line, WHEN_TO_USE_LINE.format(hint=hint)] if hint else [line]


def _entry_details(entry: ShipitEntry) -> list[str]:
    """Return the details of a tool that release 2.2 lists besides its description."""
    access = {True: "read-only", False: "action", None: ""}[entry.read_only]
    server = entry.server and f"MCP: {entry.server}"
    state = entry.connection_state or "unknown"
    connection = entry.connection_id and f"{entry.connection_id}: {state}"
    return [detail for detail in (entry.category, access, server, connection) if detail]


def build_haystack(entry: ShipitEntry) -> str:
    """Return the lowercase texts of a tool that release 1.0 compares with a query."""
    return fuzzy.build_haystack(entry.name, entry.description, entry.prompt_instructions)


def _corpus_texts(entry: ShipitEntry) -> tuple[str, ...]:
    """Return the texts that count for the rarity of words."""
    hint, terms = entry.prompt_instructions, entry.discovery_terms
    return entry.name, entry.description, hint, entry.category, entry.server, terms


def _connection_texts(entry: ShipitEntry) -> tuple[str, ...]:
    """Return the texts that are searched but do not count for rarity."""
    return entry.connection_id, entry.connection_state, _ACCESS_WORDS[entry.read_only]


def _split_words(*texts: str) -> set[str]:
    """Return the words of texts, split at underscores and inside `camelCase`."""
    spaced = _CAMEL_BORDER.sub(" ", " ".join(texts))
    return set(_WORD.findall(spaced.casefold()))


def _is_exact_name(query: str, entry: ShipitEntry) -> bool:
    return query.casefold() == entry.name.casefold()
