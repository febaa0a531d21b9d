"""Which tools a model sees from the start, and how much of the others; its searches, and which providers search.

A tool's *policy* is `never` deferred, `always` deferred, or `automatic`, which leaves it to the
`Disclosure`. Everything here is a pure function of the tools and the settings.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from toolcrib.core.token_count import TokenCounter, ToolTokenCounter, count_tool_tokens, estimate_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

Provider = Literal["anthropic", "openai"]

FIRST_CLAUDE_VERSION: Final = (4, 5)
FIRST_GPT_VERSION: Final = (5, 4)

_CLAUDE = re.compile(r"claude-(?:sonnet|opus|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_GPT = re.compile(r"gpt-(\d{1,2})(?:\.(\d{1,2}))?(?![\d.])")
WINDOW_TOKENS: Final = 200_000
SHARE_PERCENT: Final = 10.0
SERVER_PRIORITY: Final = "server_priority"
ALPHABETICAL: Final = "alphabetical"
RANDOM: Final = "random"
USAGE: Final = "usage"
SERVER_SIZE: Final = "server_size"
ORDERS: Final = (SERVER_PRIORITY, ALPHABETICAL, RANDOM, USAGE, SERVER_SIZE)
_MAX_INTEGER_CHARS = 18
_SHARE = re.compile(r"auto(?::([0-9]{1,3}(?:\.[0-9]{1,3})?)%?)?")

Tier = Literal["full", "stub", "name", "hidden"]


def find_hosting_provider(model: str) -> Provider | None:
    """Return the provider that searches tools for this model, or None.

    The result is None for unknown models and for models behind a gateway (`openai/gpt-5.4`), which
    may not pass the provider's own formats through.
    """
    claude = _CLAUDE.match(model)
    if claude and _version(claude) >= FIRST_CLAUDE_VERSION:
        return "anthropic"
    gpt = _GPT.match(model)
    if gpt and _version(gpt) >= FIRST_GPT_VERSION and "nano" not in model:
        return "openai"
    return None


def _version(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2] or 0)


def parse_queries(arguments: Mapping[str, Any]) -> list[str]:
    """Return the queries of a search: `query`, `queries`, or both, as a list or a text."""
    several = arguments.get("queries")
    values = [arguments.get("query"), *(several if isinstance(several, list) else [several])]
    texts = (value.strip() for value in values if isinstance(value, str))
    return list(dict.fromkeys(filter(None, texts)))


def parse_limit(arguments: Mapping[str, Any], default: int, most: int) -> int:
    """Return how many hits a search asks for, between 1 and `most`."""
    return parse_integer(arguments.get("limit"), default, 1, most)


def parse_integer(value: object, default: int, least: int, most: int) -> int:
    """Return an integer of a call within limits, or the default. Some models write it as text."""
    if isinstance(value, str) and len(value) <= _MAX_INTEGER_CHARS and value.strip().isdecimal():
        value = int(value)
    # The last condition excludes NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return default
    return int(min(max(value, least), most))


def parse_found_names(text: str) -> tuple[str, ...]:
    """Return the names in the reply to a search; none if the text is something else, or was cut."""
    try:
        return tuple(str(entry["name"]) for entry in json.loads(text)["found"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _check_count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value is True or value < 0):
        raise InvalidConfig(f"{name} is a whole number from 0, or None, not {value!r}")


@dataclass(frozen=True, slots=True)
class Activation:
    """When tools are deferred: from a number of tools, or of tokens in their definitions.

    Either is enough. None never is.
    """

    tools: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        _check_count("tools", self.tools)
        _check_count("tokens", self.tokens)

    @classmethod
    def parse(cls, setting: object, window_tokens: int = WINDOW_TOKENS) -> Activation:
        """Parse a setting: false, true, a number of tools, "auto", or "auto:10%" of the window."""
        if isinstance(setting, bool):
            return cls(tools=0) if setting else cls()
        if isinstance(setting, int) and setting >= 0:
            return cls(tools=setting)
        share = _SHARE.fullmatch(setting.strip()) if isinstance(setting, str) else None
        percent = float(share[1] or SHARE_PERCENT) if share else 101.0
        if percent > 100:
            raise InvalidConfig(
                f"{setting!r} does not say when to defer tools; write true, false, a number of "
                'tools, or a share of the context window such as "auto:10%"'
            )
        return cls(tokens=int(window_tokens * percent / 100))

    def is_met(self, tools: Sequence[Tool], count: TokenCounter = estimate_tokens) -> bool:
        """Return whether these tools are enough to defer some."""
        if self.tools is not None and len(tools) >= self.tools:
            return True
        if self.tokens is None:
            return False
        total = 0
        for tool in tools:
            total += count_tool_tokens(tool, count)
            if total >= self.tokens:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Selection:
    """An order of preference. Each key breaks the ties of those before it; names break the rest."""

    by: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict, hash=False)
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            object.__setattr__(self, "by", (self.by,))
        for name, value in (("by", self.by), ("servers", self.servers)):
            if isinstance(value, str) or not isinstance(value, Collection):
                raise InvalidConfig(f"{name} is a tuple of texts, not {value!r}; write ({value!r},)")
        if not isinstance(self.usage, Mapping):
            raise InvalidConfig(f"usage is the number of calls by the id of a tool, not {self.usage!r}")
        if unknown := [key for key in self.by if key not in ORDERS]:
            raise InvalidConfig(f"no order of tools {unknown[0]!r}; the orders are {', '.join(ORDERS)}")

    def sort_tools(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools in this order; without a key, in their own."""
        unsorted = list(tools)
        if not self.by:
            return unsorted
        servers = dict.fromkeys((*self.servers, *(tool.server for tool in unsorted)))
        places = {server: place for place, server in enumerate(servers)}
        sizes = Counter(tool.server for tool in unsorted)
        keys: dict[str, Callable[[Tool], Any]] = {
            SERVER_PRIORITY: lambda tool: places[tool.server],
            ALPHABETICAL: lambda tool: tool.name,
            # Seeded by name, so that a tool's place does not change when others come or go.
            RANDOM: lambda tool: random.Random(f"{self.seed} {tool.name}").random(),
            USAGE: lambda tool: -self.usage.get(tool.id, 0),
            SERVER_SIZE: lambda tool: (sizes[tool.server], places[tool.server]),
        }
        chosen = [keys[key] for key in self.by]
        return sorted(unsorted, key=lambda tool: (*(key(tool) for key in chosen), tool.name))


@dataclass(frozen=True, slots=True)
class DisclosurePlan:
    """The tools that are shown in full, in order, and those that are deferred.

    `tier` is how much of the deferred tools is shown.
    """

    visible_tools: tuple[Tool, ...]
    deferred_tools: tuple[Tool, ...]
    tier: Tier = "hidden"

    @property
    def is_active(self) -> bool:
        """Whether any tool is deferred, so that a search tool is needed."""
        return bool(self.deferred_tools)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The settings of disclosure.

    Attributes:
        activation: When to start deferring. Few tools cost less than searching for them, and
            models choose worse among more than about thirty.
        pinned: Names or ids of tools that are always shown in full.
        tier: How much of the deferred tools is shown.
        max_visible_tools: How many other tools are shown in full; None means unlimited.
        max_visible_tokens: How many tokens these may take; None means unlimited.
        whole_servers: Whether of these the tools of one server are shown all or none.
        selection: In which order these are chosen.
        count: Returns the tokens of a text, by default an estimate.
    """

    activation: Activation = Activation(tools=31, tokens=10_000)
    pinned: frozenset[str] = frozenset()
    tier: Tier = "hidden"
    max_visible_tools: int | None = 0
    max_visible_tokens: int | None = None
    whole_servers: bool = False
    selection: Selection = Selection()
    count: TokenCounter = estimate_tokens

    def __post_init__(self) -> None:
        if not isinstance(self.activation, Activation):
            raise InvalidConfig(
                f'activation is an Activation, not {self.activation!r}; Activation.parse("auto:10%") parses a setting'
            )
        if isinstance(self.pinned, str):
            raise InvalidConfig(f"pinned is a set of names; write frozenset({{{self.pinned!r}}})")
        if not isinstance(self.pinned, Collection) or not all(isinstance(name, str) for name in self.pinned):
            raise InvalidConfig(f"pinned is a set of the names or ids of tools, not {self.pinned!r}")
        object.__setattr__(self, "pinned", frozenset(self.pinned))
        if not isinstance(self.selection, Selection):
            raise InvalidConfig(f'selection is a Selection, not {self.selection!r}; write Selection(("alphabetical",))')
        if not callable(self.count):
            raise InvalidConfig(f"count is a function that returns the tokens of a text, not {self.count!r}")
        if self.tier not in get_args(Tier):
            raise InvalidConfig(f"no tier {self.tier!r}; the tiers are {', '.join(get_args(Tier))}")
        _check_count("max_visible_tools", self.max_visible_tools)
        _check_count("max_visible_tokens", self.max_visible_tokens)

    def is_pinned(self, tool: Tool) -> bool:
        """Return whether a tool is always shown in full."""
        return tool.policy == "never" or tool.name in self.pinned or tool.id in self.pinned

    def plan(self, tools: Iterable[Tool]) -> DisclosurePlan:
        """Return which of these tools to show and which to defer.

        A tool whose policy is `always` is deferred even among few tools, unless it is pinned.
        """
        every = tuple(tools)
        if self.tier == "full":
            return DisclosurePlan(every, (), self.tier)
        is_active = self.activation.is_met(every, self.count)
        visible = {tool.id for tool in every if self.is_pinned(tool) or (not is_active and tool.policy != "always")}
        if is_active:
            visible.update(tool.id for tool in self._select_within_budget(every, visible))
        return DisclosurePlan(
            tuple(tool for tool in every if tool.id in visible),
            tuple(tool for tool in every if tool.id not in visible),
            self.tier,
        )

    def plan_within(self, tools: Iterable[Tool], budget_tokens: int | None, count: ToolTokenCounter) -> DisclosurePlan:
        """Return the plan for sessions with a token budget.

        Tools are deferred even if the activation is not met, if all of them exceed the budget.
        """
        plan = self.plan(tools)
        if budget_tokens is None or plan.is_active or sum(map(count, plan.visible_tools)) <= budget_tokens:
            return plan
        return replace(self, activation=Activation(tools=0)).plan(plan.visible_tools)

    def _select_within_budget(self, tools: Iterable[Tool], pinned: Collection[str]) -> list[Tool]:
        """Return the first unpinned tools in order that fit into the budget."""
        if self.max_visible_tools == 0 or self.max_visible_tokens == 0:
            return []
        candidates = [tool for tool in tools if tool.id not in pinned and tool.policy != "always"]
        limit = len(candidates) if self.max_visible_tools is None else self.max_visible_tools
        chosen: list[Tool] = []
        tokens_left = self.max_visible_tokens
        for group in self._group(self.selection.sort_tools(candidates)):
            if len(chosen) == limit:
                break
            if len(chosen) + len(group) > limit:
                continue
            if tokens_left is not None:
                cost = sum(count_tool_tokens(tool, self.count) for tool in group)
                if cost > tokens_left:
                    continue
                tokens_left -= cost
            chosen.extend(group)
        return chosen

    def _group(self, tools: Iterable[Tool]) -> Iterable[list[Tool]]:
        """Return the tools in groups that are shown all or none."""
        if not self.whole_servers:
            return ([tool] for tool in tools)
        servers: dict[str, list[Tool]] = {}
        for tool in tools:
            servers.setdefault(tool.server, []).append(tool)
        return servers.values()
