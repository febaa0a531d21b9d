"""Which tools of a request a model sees from the start, and how it gets the others.

Tools are sent up front (`all`), or deferred in one of two styles. In `reveal` the tools that a search
finds are added to the list of tools, which comes first in a prompt, so the prompt cache is lost. In
`dispatch` the list never changes: the result of a search has the definitions, and `call_tool` calls
the tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.config.settings import LlmSearchStyle, LlmTier
from toolcrib.core.tool import Tool

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SEARCH_VERBS: Final = frozenset({"search", "find", "retrieve", "discover", "lookup", "load", "list", "describe"})
_CALL_VERBS: Final = frozenset({"call", "execute", "exec", "run", "invoke", "use", "dispatch"})
# Words that may stand between the verb and "tool".
_FILLERS: Final = frozenset({"for", "available", "dynamic", "multi", "mcp", "the", "a"})
_QUERY_NAMES: Final = frozenset(
    {"query", "queries", "q", "keywords", "pattern", "names", "name", "tool_name", "tool_names", "goal", "use_case"}
)
_NAME_NAMES: Final = frozenset({"tool_name", "name", "tool", "tool_slug", "tools", "tool_id"})
_INPUT_NAMES: Final = frozenset(
    {"arguments", "args", "args_json", "input", "tool_input", "tool_args", "tool_arguments", "parameters", "params"}
)
# The price of a cached input token, as a share of the price of an uncached one, by model.
CACHED_PRICES: Final[Sequence[tuple[re.Pattern[str], float]]] = (
    (re.compile(r"claude|gpt-[5-9]|deepseek|gemini"), 0.1),
    (re.compile(r"gpt-4\.1|o[34](?!-mini)|o4-mini|grok|kimi|glm|minimax"), 0.25),
    (re.compile(r"gpt-4o|o1|o3-mini"), 0.5),
)
UNKNOWN_CACHED_PRICE: Final = 0.25
# From this price on a prompt cache does not pay, and `reveal` is as cheap as `dispatch`.
NO_CACHE_PRICE: Final = 0.9
# Models with fewer parameters often fail to nest the arguments of a tool in those of another.
MIN_DISPATCH_BILLIONS: Final = 4.0
# The conversation for which costs are compared: requests, searches, tokens of the search tools, of a
# search without definitions, and of the history that each additional request reads again.
TYPICAL_REQUESTS: Final = 30
TYPICAL_SEARCHES: Final = 6
SEARCH_TOOLS_TOKENS: Final = 350
SEARCH_TOKENS: Final = 150
FOUND_PER_SEARCH: Final = 2.0
TYPICAL_HISTORY_TOKENS: Final = 8_000
_BILLIONS: Final = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,2})?)b(?![a-z0-9])")

Style = Literal["all", "dispatch", "reveal"]


class KnownClient(NamedTuple):
    """A client with built-in tools: those that identify it, and those that it needs in most turns."""

    markers: frozenset[str]
    pinned: frozenset[str]


# The names are those of Claude Code 2.1, Codex 0.40 to 0.169 and opencode 1.18.
KNOWN_CLIENTS: Final = (
    KnownClient(
        frozenset({"Bash", "Read", "Edit", "Write"}),
        frozenset(
            {
                "Agent", "AskUserQuestion", "Bash", "BashOutput", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob",
                "Grep", "KillShell", "LS", "MultiEdit", "NotebookEdit", "PowerShell", "Read", "Skill", "Task",
                "TaskCreate", "TaskOutput", "TaskUpdate", "TodoWrite", "WebFetch", "WebSearch", "Write",
            }
        ),
    ),
    *(
        KnownClient(
            frozenset(markers),
            frozenset(
                {
                    "apply_patch", "exec_command", "grep_files", "list_dir", "local_shell", "read_file",
                    "request_user_input", "shell", "shell_command", "update_plan", "view_image", "write_stdin",
                }
            ),
        )
        for markers in (("exec_command", "write_stdin"), ("shell", "update_plan"), ("shell_command", "update_plan"))
    ),
    KnownClient(
        frozenset({"bash", "read", "glob", "grep"}),
        frozenset(
            {
                "apply_patch", "bash", "edit", "glob", "grep", "list", "multiedit", "patch", "question", "read",
                "skill", "task", "todoread", "todowrite", "webfetch", "websearch", "write",
            }
        ),
    ),
)  # fmt: skip


def is_discovery_tool(name: str, schema: Mapping[str, Any]) -> bool:
    """Return whether a tool finds or calls other tools, by its name and its parameters.

    If such a tool were deferred, the tools behind it could not be found.
    """
    properties = dict_or_empty(schema.get("properties"))
    words = [word.lower() for word in _WORDS.findall(name)]
    verbs = {verb for word, after in _pair_words(words) for verb in (word, after) if "tool" in (word, after)}
    if verbs & _SEARCH_VERBS and (not properties or not _QUERY_NAMES.isdisjoint(properties)):
        return True
    is_call = not _NAME_NAMES.isdisjoint(properties)
    if verbs & _CALL_VERBS and is_call:
        return True
    names = {"tool_name", "tool", "tool_slug", "tool_id"} & properties.keys()
    return bool(names) and not _INPUT_NAMES.isdisjoint(properties)


def _pair_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the neighbouring words of a name, with `tool` for `tools` and without filling words."""
    kept = ["tool" if word == "tools" else word for word in words if word not in _FILLERS]
    return list(pairwise(kept))


class ExposurePlan(NamedTuple):
    """The ids of the deferred tools, the style, why it was chosen, and what of them is shown.

    If `prefetches` is true, a message of the user is sent with the prefetched definitions.
    """

    deferred_ids: frozenset[str]
    style: Style
    reason: str
    tier: LlmTier = "hidden"
    prefetches: bool = False


@dataclass(frozen=True, slots=True)
class Exposure:
    """The settings of one request.

    Attributes:
        always_expose: Patterns of tool names that are never deferred.
        style: How the model gets deferred tools; `auto` chooses the cheapest way.
        tier: Whether the model sees the names and descriptions of deferred tools.
        threshold_tools: From how many tools on some are deferred.
        threshold_tokens: From how many tokens of definitions on some are deferred.
        model: The name of the model.
        cached_price: The price of a cached token as a share of that of an uncached one.
        prefetch: Whether to search with each message of the user before the model is asked, in dispatch.
    """

    always_expose: tuple[str, ...] = ()
    style: LlmSearchStyle = "auto"
    tier: LlmTier = "hidden"
    threshold_tools: int = 1
    threshold_tokens: int | None = None
    model: str = ""
    cached_price: float = UNKNOWN_CACHED_PRICE
    prefetch: bool = False

    def plan(self, tools: Sequence[tuple[Tool, int]]) -> ExposurePlan:
        """Return which of these tools to defer, and how. Each has its size in tokens."""
        total_tokens = sum(tokens for _, tokens in tools)
        is_large = self.threshold_tokens is not None and total_tokens >= self.threshold_tokens
        if len(tools) < self.threshold_tools and not is_large:
            return _send_all(f"{len(tools)} tools are below the threshold")
        names = frozenset(tool.name for tool, _ in tools)
        deferred = [(tool, tokens) for tool, tokens in tools if not self._is_pinned(tool, names)]
        if not deferred:
            return _send_all("all tools are pinned")
        style, reason = self._choose_style(len(deferred), sum(tokens for _, tokens in deferred))
        if style == "all":
            return _send_all(reason)
        ids = frozenset(tool.id for tool, _ in deferred)
        return ExposurePlan(ids, style, reason, self.tier, self.prefetch and style == "dispatch")

    def _is_pinned(self, tool: Tool, names: frozenset[str]) -> bool:
        return (
            tool.policy == "never"
            or any(map(partial(fnmatchcase, tool.name), self.always_expose))
            or any(client.markers <= names and tool.name in client.pinned for client in KNOWN_CLIENTS)
            or is_discovery_tool(tool.name, tool.input_schema)
        )

    def _choose_style(self, count: int, tokens: int) -> tuple[Style, str]:
        if self.style != "auto":
            return self.style, "as configured"
        if self.cached_price >= NO_CACHE_PRICE:
            return "reveal", f"cached tokens cost {self.cached_price:g} of uncached ones"
        if is_small_model(self.model):
            return "reveal", "the name of the model says that it is small"
        up_front = estimate_up_front_cost(tokens, self.cached_price)
        dispatch = estimate_dispatch_cost(tokens / count, self.cached_price)
        figures = f"{tokens:,} tokens of tools, cached at {self.cached_price:g}"
        if self.threshold_tools > 1 and up_front <= dispatch:
            return "all", f"cheaper than dispatch for {figures}"
        return "dispatch", f"cheaper than all tools for {figures}"


def estimate_up_front_cost(tokens: int, cached_price: float) -> float:
    """Return the cost of tools that are sent with every request of a typical conversation."""
    return tokens * (1 + cached_price * (TYPICAL_REQUESTS - 1))


def estimate_dispatch_cost(tokens_per_tool: float, cached_price: float) -> float:
    """Return the cost of the searches of a typical conversation, in uncached tokens.

    A definition is read again by all requests after the search; a search is one more request, which
    reads the history again.
    """
    requests = TYPICAL_REQUESTS + TYPICAL_SEARCHES
    fixed = SEARCH_TOOLS_TOKENS * (1 + cached_price * (requests - 1))
    per_search = FOUND_PER_SEARCH * tokens_per_tool + SEARCH_TOKENS
    definitions = TYPICAL_SEARCHES * per_search * (1 + cached_price * requests / 2)
    return fixed + definitions + TYPICAL_SEARCHES * cached_price * TYPICAL_HISTORY_TOKENS


def find_cached_price(model: str) -> float:
    """Return the public price of cached tokens of a model, or a typical one."""
    name = model.lower().rpartition("/")[2]
    return next((price for pattern, price in CACHED_PRICES if pattern.match(name)), UNKNOWN_CACHED_PRICE)


def is_small_model(model: str) -> bool:
    """Return whether a model has few parameters, judging by its name, as `qwen3-1.7b` does."""
    sizes = [float(size) for size in _BILLIONS.findall(model.lower())]
    return bool(sizes) and max(sizes) < MIN_DISPATCH_BILLIONS


def _send_all(reason: str) -> ExposurePlan:
    return ExposurePlan(frozenset(), "all", reason)
