"""Which tools a model is shown from the start, and how much of the others.

A *policy* belongs to a tool: `never` held back, `always` held back, or `automatic`, which leaves it
to the `Disclosure`. Everything here is a pure function of the tools and the settings.
"""

from __future__ import annotations

import random
import re
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from toolcrib.core.token_count import TokenCounter, count_tool_tokens, estimate_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig

Tier = Literal["full", "stub", "name", "hidden"]

WINDOW_TOKENS: Final = 200_000
SHARE_PERCENT: Final = 10.0
SERVER_PRIORITY: Final = "server_priority"
ALPHABETICAL: Final = "alphabetical"
RANDOM: Final = "random"
USAGE: Final = "usage"
SERVER_SIZE: Final = "server_size"
ORDERS: Final = (SERVER_PRIORITY, ALPHABETICAL, RANDOM, USAGE, SERVER_SIZE)

_SHARE = re.compile(r"auto(?::([0-9]{1,3}(?:\.[0-9]{1,3})?)%?)?")


def _check_count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value is True or value < 0):
        raise InvalidConfig(f"{name} is a whole number from 0, or None, not {value!r}")


@dataclass(frozen=True, slots=True)
class Activation:
    """From when on tools are held back: from so many tools, or so many tokens of definitions.

    Either is enough; None is never enough.
    """

    tools: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        _check_count("tools", self.tools)
        _check_count("tokens", self.tokens)

    @classmethod
    def parse(cls, setting: object, window_tokens: int = WINDOW_TOKENS) -> Activation:
        """From a setting: false, true, a number of tools, "auto", or "auto:10%" of the window."""
        if isinstance(setting, bool):
            return cls(tools=0) if setting else cls()
        if isinstance(setting, int) and setting >= 0:
            return cls(tools=setting)
        share = _SHARE.fullmatch(setting.strip()) if isinstance(setting, str) else None
        percent = float(share[1] or SHARE_PERCENT) if share else 101.0
        if percent > 100:
            raise InvalidConfig(
                f"{setting!r} does not say when to hold tools back; write true, false, a number "
                'of tools, or a share of the context window such as "auto:10%"'
            )
        return cls(tokens=int(window_tokens * percent / 100))

    def is_met(self, tools: Sequence[Tool], count: TokenCounter = estimate_tokens) -> bool:
        """Whether these tools are enough to hold some back."""
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
    """An order of preference: each way breaks the ties of those before it, names break the rest."""

    by: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict, hash=False)
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := [way for way in self.by if way not in ORDERS]:
            raise InvalidConfig(
                f"no way of ordering tools {unknown[0]!r}; the ways are {', '.join(ORDERS)}"
            )

    def sort_tools(self, tools: Iterable[Tool]) -> list[Tool]:
        """The tools in this order; without any way, as given."""
        given = list(tools)
        known = dict.fromkeys((*self.servers, *(tool.server for tool in given)))
        places = {server: place for place, server in enumerate(known)}
        sizes = Counts(tool.server for tool in given)
        keys: dict[str, Callable[[Tool], Any]] = {
            SERVER_PRIORITY: lambda tool: places[tool.server],
            ALPHABETICAL: lambda tool: tool.name,
            # A tool's luck is its own: it does not change when other tools come or go.
            RANDOM: lambda tool: random.Random(f"{self.seed} {tool.name}").random(),
            USAGE: lambda tool: -self.usage.get(tool.id, 0),
            SERVER_SIZE: lambda tool: (sizes[tool.server], places[tool.server]),
        }
        asked = [keys[way] for way in self.by]
        if not asked:
            return given
        return sorted(given, key=lambda tool: (*(key(tool) for key in asked), tool.name))


@dataclass(frozen=True, slots=True)
class DisclosurePlan:
    """What is shown in full, in order, and what is held back. `tier` is how much of that is shown."""

    visible_tools: tuple[Tool, ...]
    deferred_tools: tuple[Tool, ...]
    tier: Tier = "hidden"

    @property
    def is_active(self) -> bool:
        """Whether anything is held back, so that a search tool is needed."""
        return bool(self.deferred_tools)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The settings: when to begin, what is pinned, and how many others are shown in full anyway."""

    # Few tools cost less than searching for them; models choose worse among more than some thirty.
    activation: Activation = Activation(tools=31, tokens=10_000)
    pinned: frozenset[str] = frozenset()
    tier: Tier = "hidden"
    max_visible_tools: int | None = 0
    max_visible_tokens: int | None = None
    # Whether, of what is shown besides, a server's tools are shown all or none.
    whole_servers: bool = False
    selection: Selection = Selection()
    count: TokenCounter = estimate_tokens

    def __post_init__(self) -> None:
        if not isinstance(self.activation, Activation):
            raise InvalidConfig(
                f"activation is an Activation, not {self.activation!r}; "
                'Activation.read("auto:10%") reads a setting'
            )
        if isinstance(self.pinned, str):
            raise InvalidConfig(f"pinned is a set of names; write {{{self.pinned!r}}}")
        if self.tier not in get_args(Tier):
            raise InvalidConfig(f"no tier {self.tier!r}; the tiers are {', '.join(get_args(Tier))}")
        _check_count("shown_tools", self.max_visible_tools)
        _check_count("shown_tokens", self.max_visible_tokens)

    def is_pinned(self, tool: Tool) -> bool:
        """Whether a tool is shown in full from the start, whatever there is besides it."""
        return tool.policy == "never" or tool.name in self.pinned or tool.id in self.pinned

    def plan(self, tools: Iterable[Tool]) -> DisclosurePlan:
        """What to show of these tools and what to hold back.

        A tool whose policy is `always` is held back also among few; a pin is stronger than that.
        """
        given = tuple(tools)
        if self.tier == "full":
            return DisclosurePlan(given, (), self.tier)
        active = self.activation.is_met(given, self.count)
        kept = {
            tool.id
            for tool in given
            if self.is_pinned(tool) or (not active and tool.policy != "always")
        }
        if active:
            kept.update(tool.id for tool in self._within_budget(given, kept))
        return DisclosurePlan(
            tuple(tool for tool in given if tool.id in kept),
            tuple(tool for tool in given if tool.id not in kept),
            self.tier,
        )

    def _within_budget(self, tools: Iterable[Tool], pinned: Collection[str]) -> list[Tool]:
        """The unpinned tools that are shown too: the first in order, while the budget lasts."""
        if self.max_visible_tools == 0 or self.max_visible_tokens == 0:
            return []
        free = [tool for tool in tools if tool.id not in pinned and tool.policy != "always"]
        most = len(free) if self.max_visible_tools is None else self.max_visible_tools
        chosen: list[Tool] = []
        left = self.max_visible_tokens
        for group in self._groups(self.selection.sort_tools(free)):
            if len(chosen) == most:
                break
            if len(chosen) + len(group) > most:
                continue
            if left is not None:
                cost = sum(count_tool_tokens(tool, self.count) for tool in group)
                if cost > left:
                    continue
                left -= cost
            chosen.extend(group)
        return chosen

    def _groups(self, ordered: Iterable[Tool]) -> Iterable[list[Tool]]:
        """What is shown together or not at all, in order of preference."""
        if not self.whole_servers:
            return ([tool] for tool in ordered)
        servers: dict[str, list[Tool]] = {}
        for tool in ordered:
            servers.setdefault(tool.server, []).append(tool)
        return servers.values()
