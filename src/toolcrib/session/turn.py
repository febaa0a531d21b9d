"""One turn of a conversation, without doing anything: which tools to show, what each call means.

The model made calls. Some are searches, which are answered here. Some name tools, and are to be run,
by us or by the caller. Some are faulty, and get an answer that says what to do. Nothing is run here
and nothing is kept: a `Turn` says what to do and what the session is afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal

from toolcrib.core import prompts
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.token_count import TokenCounter, estimate_tokens
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidQuery, InvalidSchema
from toolcrib.search.engine import MAX_QUERY_CHARS, AllowedTools, SearchEngine
from toolcrib.search.results import SearchResult, find_uncovered
from toolcrib.session.disclosure import DisclosurePlan
from toolcrib.session.session import ModelAction, Session

Style = Literal["reveal", "dispatch"]

DEFAULT_LIMIT: Final = 5
MAX_LIMIT: Final = 20
MAX_QUERIES: Final = 8
MAX_SEARCHES: Final = 10
MAX_SUGGESTIONS: Final = 5
MAX_LISTED_NAMES: Final = 500
OPEN_SCHEMA: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": True}
MAX_DESCRIPTION_CHARS: Final = 200
MAX_QUOTED_NAME_CHARS: Final = 80
MAX_QUOTED_SEGMENT_CHARS: Final = 100

# With how many names a misspelt one is compared, how much longer or shorter they may be, and from
# which share of letters in common on they are alike.
MAX_COMPARED_NAMES: Final = 10_000
_MISSPELT_CHARS: Final = 3
_ALIKE: Final = 0.85

_SYNTAX = re.compile(r"[^\w\s]+")


@dataclass(frozen=True, slots=True)
class ToolTask:
    """A call that is to be run: the tool it means, and the arguments for it.

    `note` is what the model is to be told beside the result.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    note: str = ""

    def build_answer(self, text: str, is_error: bool = False) -> CallReply:
        """The answer to the call: what came of it, and the note."""
        return CallReply(self.call, f"{text}\n\n{self.note}" if self.note else text, is_error)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the calls of one turn mean, in their order, and the session after them."""

    session: Session
    answers: tuple[CallReply, ...] = ()
    tasks: tuple[ToolTask, ...] = ()


@dataclass(frozen=True)
class TurnHandler:
    """The rules of one conversation: what there is to search, what is shown, and in which style.

    `reveal`: what a search finds is added to the list of tools. `dispatch`: the list never changes;
    a search answers with full definitions, and a second tool calls what was found.
    """

    engine: SearchEngine
    plan: DisclosurePlan
    names: ToolNames
    style: Style = "reveal"
    allowed: AllowedTools | None = None
    count: TokenCounter = field(default=estimate_tokens)
    validates_arguments: bool = True
    search_name: str = prompts.SEARCH_NAME

    def start_session(self, budget_tokens: int | None = None) -> Session:
        """A session that has been shown what is shown from the start."""
        pinned = filter(self.is_allowed, self.plan.visible_tools)
        return Session(budget_tokens=budget_tokens).pin(pinned, self.count)

    def resume_session(self, session: Session) -> Session:
        """A session from before: without what is gone since, and with what is newly pinned."""
        current = session.drop_stale(self.engine.catalog, self.is_allowed)
        known = {one.id for one in current.revealed}
        new = [
            tool
            for tool in self.plan.visible_tools
            if tool.id not in known and self.is_allowed(tool)
        ]
        return current.pin(new, self.count)

    def replay_history(
        self, turns: Iterable[Sequence[PastCall]], budget_tokens: int | None = None
    ) -> Session:
        """The session that a message history tells of: for those who keep nothing else."""
        start = self.start_session(budget_tokens)
        return Session.from_history(
            self.actions_from_history(turns), self.find_tool, start=start, count=self.count
        )

    def eviction_notes(
        self, turns: Iterable[Sequence[PastCall]], budget_tokens: int | None = None
    ) -> dict[str, str]:
        """What belongs beside the results of the calls in a history, by call id: see `Task.note`."""
        session = self.start_session(budget_tokens)
        told: dict[str, str] = {}
        for exchange in (one for exchanges in turns for one in exchanges):
            act = self._act(exchange)
            later = Session.from_history([[act]], self.find_tool, start=session, count=self.count)
            if act.type == "use" and later.clock != session.clock and later.evicted:
                told[exchange.call.id] = self._put_away(later)
            session = later
        return told

    def tools(self, session: Session) -> tuple[Tool, ...]:
        """The tools to send: our own first, as they never change, then what the session shows.

        Stubs come last, so that a tool which is revealed leaves them and joins those before.
        """
        visible = session.visible_tools(self.engine.catalog, self.is_allowed)
        shown = {tool.id for tool in visible} if self._stubs else ()
        stubs = (stub for stub in self._stubs if stub.id not in shown)
        return (*self.own_tools, *visible, *stubs)

    @cached_property
    def own_tools(self) -> tuple[Tool, ...]:
        """The search tool, if there is anything to search for, and in dispatch the one that calls."""
        if not self.plan.is_active:
            return ()
        return (self.search_tool, self.execute_tool) if self._dispatches else (self.search_tool,)

    @cached_property
    def search_tool(self) -> Tool:
        """The tool that finds the others."""
        execute = self._free_name(prompts.EXECUTE_NAME)
        about = prompts.DISPATCH_DESCRIPTION.format(execute=execute)
        limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=DEFAULT_LIMIT)
        needs = {"type": "array", "items": {"type": "string"}}
        return Tool(
            self._free_name(self.search_name),
            self._with_names(about if self._dispatches else prompts.SEARCH_DESCRIPTION),
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": prompts.QUERY_DESCRIPTION},
                    "queries": {**needs, "description": prompts.QUERIES_DESCRIPTION},
                    "limit": {"type": "integer", "description": limit},
                },
            },
            policy="never",
            annotations={"readOnlyHint": True, "idempotentHint": True},
        )

    @cached_property
    def execute_tool(self) -> Tool:
        """The tool that calls what a search has found."""
        search = self.search_tool.name
        tool = prompts.EXECUTE_TOOL_DESCRIPTION.format(search=search)
        return Tool(
            self._free_name(prompts.EXECUTE_NAME),
            prompts.EXECUTE_DESCRIPTION.format(search=search),
            {
                "type": "object",
                "properties": {
                    "tool_name": {"type": "string", "description": tool},
                    "tool_input": {
                        "type": "object",
                        "description": prompts.EXECUTE_INPUT_DESCRIPTION,
                    },
                },
                "required": ["tool_name", "tool_input"],
            },
            policy="never",
        )

    @cached_property
    def _stubs(self) -> tuple[Tool, ...]:
        """What is held back, without parameters, where that much of it is to be seen."""
        if self.plan.tier != "stub":
            return ()
        held = filter(self.is_allowed, self.plan.deferred_tools)
        return tuple(tool.replace(id=tool.id, input_schema=dict(OPEN_SCHEMA)) for tool in held)

    def _with_names(self, about: str) -> str:
        """The search tool's description, with the names to search for where they are to be seen."""
        if self.plan.tier != "name":
            return about
        names = [
            self.names.name_for(tool) for tool in filter(self.is_allowed, self.plan.deferred_tools)
        ]
        more = ["…"] if len(names) > MAX_LISTED_NAMES else []
        return f"{about} {prompts.SOURCE_NAMES.format(names=', '.join(names[:MAX_LISTED_NAMES] + more))}"

    def is_allowed(self, tool: Tool) -> bool:
        """Whether the caller has the right to a tool."""
        return self._accepts(tool)

    def find_tool(self, name: str, namespace: str = "") -> Tool | None:
        """The tool of a name, if there is one and the caller may use it.

        A namespace that is not a group of ours is that of the server a tool came from.
        """
        tool = self.names.find_tool(name)
        if tool is None and namespace:
            tool = self.names.find_tool(f"{namespace}{SERVER_SEPARATOR}{name}")
        return tool if tool and self.is_allowed(tool) else None

    def handle_calls(
        self, session: Session, calls: Sequence[ToolCall], loaded: Iterable[str] = ()
    ) -> Turn:
        """What these calls mean. A call to a tool that was not shown is as good as any other.

        `loaded` are the names of tools that the provider itself has found in this turn.
        """
        session = session.drop_stale(self.engine.catalog, self.is_allowed)
        known = [tool for tool in map(self.find_tool, loaded) if tool]
        if known and not self._dispatches:
            session = session.reveal(known, self.count)
        answers: list[CallReply] = []
        tasks: list[ToolTask] = []
        before = session.consecutive_searches
        for call in calls:
            if self._is_search(call):
                session, answer = self._searched(session, call, before)
                answers.append(answer)
                continue
            meant = self._meant(call)
            if isinstance(meant, CallReply):
                answers.append(meant)
                continue
            if self.style == "reveal":
                session = session.reveal([meant.tool], self.count)
                meant = replace(meant, note=self._put_away(session))
            fault = self._fault(meant)
            if fault:
                answers.append(meant.build_answer(fault, is_error=True))
            else:
                tasks.append(meant)
        session = session.end_turn(bool(calls) and all(map(self._is_search, calls)))
        return Turn(session, tuple(answers), tuple(tasks))

    def actions_from_history(
        self, turns: Iterable[Sequence[PastCall]]
    ) -> Iterator[tuple[ModelAction, ...]]:
        """What a history says that the model did, in the words of a session."""
        for exchanges in turns:
            yield tuple(map(self._act, exchanges))

    def _act(self, exchange: PastCall) -> ModelAction:
        call = exchange.call
        if exchange.is_hosted_search:
            return ModelAction("load", () if self._dispatches else exchange.names)
        if not self._is_search(call):
            tool = self.find_tool(call.name, call.namespace)
            return ModelAction("use", (tool.id,) if tool and self.style == "reveal" else ())
        return ModelAction(
            "search", () if self._dispatches else exchange.names or _loaded(exchange.text)
        )

    def _is_search(self, call: ToolCall) -> bool:
        return self.plan.is_active and (call.is_search or call.name == self.search_tool.name)

    @property
    def _dispatches(self) -> bool:
        return self.style == "dispatch"

    @cached_property
    def _accepts(self) -> Callable[[Tool], bool]:
        allowed = self.allowed
        if allowed is None:
            return lambda tool: True
        if callable(allowed):
            return allowed
        ids = frozenset([allowed] if isinstance(allowed, str) else allowed)
        return lambda tool: tool.id in ids

    def _free_name(self, name: str) -> str:
        """A name of ours, behind as many underscores as it takes to be no other tool's."""
        while self.names.find_tool(name):
            name = f"_{name}"
        return name

    def _searched(self, session: Session, call: ToolCall, before: int) -> tuple[Session, CallReply]:
        """The answer to a search, and the session that has been shown what it found."""
        if before >= MAX_SEARCHES:
            text = prompts.TOO_MANY_SEARCHES.format(count=before)
            return session, CallReply(call, text, is_error=True)
        arguments = call.arguments or {}
        queries = _queries(arguments)
        if not queries:
            return session, CallReply(call, prompts.NO_QUERY, is_error=True)
        results = [self.search(query, _limit(arguments)) for query in queries[:MAX_QUERIES]]
        hits = {hit.tool.id: hit.tool for one in results if one.is_confident for hit in one}
        found = tuple(hits.values())
        if found and not self._dispatches:
            session = session.reveal(found, self.count)
        others = {hit.tool.id: hit.tool for one in results if not one.is_confident for hit in one}
        nearest = [tool for id, tool in others.items() if id not in hits][:MAX_SUGGESTIONS]
        missing = render_uncovered(find_uncovered(results))
        text = self._told(session, found, nearest, missing, len(queries) > MAX_QUERIES)
        return session, CallReply(call, text, found_tools=found)

    def search(self, query: str, limit: int) -> SearchResult:
        """What a model's query finds among what the caller may use."""
        query = query[:MAX_QUERY_CHARS]
        try:
            result = self.engine.search(query, limit=limit, allowed=self.allowed)
        except InvalidQuery:
            # A model writes sentences. What it did not mean as syntax is read as words.
            words = _SYNTAX.sub(" ", query).lower()
            result = self.engine.search(words, limit=limit, allowed=self.allowed)
        return result

    def _told(
        self,
        session: Session,
        found: Sequence[Tool],
        nearest: Sequence[Tool],
        missing: str,
        cut: bool,
    ) -> str:
        """A search's answer, as JSON: the names in it are how a history is read again."""
        says = [prompts.TOO_MANY_QUERIES.format(most=MAX_QUERIES)] if cut else []
        if found and self._dispatches:
            says.append(prompts.CALL_THROUGH.format(execute=self.execute_tool.name))
        elif found:
            says += [prompts.TOOLS_LOADED, self._put_away(session)]
        else:
            says.append(prompts.NO_GOOD_MATCH if nearest else prompts.NO_MATCH)
        answer: dict[str, Any] = {"found": [self._shown(tool) for tool in found]}
        if nearest:
            answer["nearest"] = [self._shown(tool) for tool in nearest]
        answer["message"] = " ".join(filter(None, [*says, missing]))
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))

    def _shown(self, tool: Tool) -> dict[str, Any]:
        if self._dispatches:
            schema = tool.input_schema
            return {
                "name": self.names.name_for(tool),
                "description": tool.description,
                "input_schema": schema,
            }
        about = tool.description
        if len(about) > MAX_DESCRIPTION_CHARS:
            about = f"{about[: MAX_DESCRIPTION_CHARS - 1]}…"
        return {"name": self.names.name_for(tool), "description": about}

    def _put_away(self, session: Session) -> str:
        """What the last act has sent away, as the model is told; nothing if that is nothing."""
        names = ", ".join(map(self._name_of, session.evicted))
        return prompts.EVICTED_TOOLS.format(names=names) if names else ""

    def _name_of(self, id: str) -> str:
        tool = self.engine.catalog.get(id)
        return self.names.name_for(tool) if tool else id

    def _meant(self, call: ToolCall) -> ToolTask | CallReply:
        """The task a call sets, or the answer that says why it sets none."""
        name, arguments = call.name, call.arguments
        if self._dispatches and self.plan.is_active and name == self.execute_tool.name:
            wrong = find_problems(self.execute_tool.input_schema, arguments)
            if wrong:
                return CallReply(call, _bad_arguments(name, wrong), is_error=True)
            assert arguments is not None
            name, arguments = arguments["tool_name"], arguments["tool_input"]
        tool = self.find_tool(name, call.namespace)
        if tool is None:
            return CallReply(call, self._unknown(name), is_error=True)
        if arguments is None:
            text = prompts.ARGUMENTS_NOT_JSON.format(name=self.names.name_for(tool))
            return CallReply(call, text, is_error=True)
        return ToolTask(call, tool, arguments)

    def _unknown(self, name: str) -> str:
        shown = name if len(name) <= MAX_QUOTED_NAME_CHARS else f"{name[:MAX_QUOTED_NAME_CHARS]}…"
        words = _SYNTAX.sub(" ", name.replace("_", " "))
        found = self.search(words, MAX_SUGGESTIONS) if words.strip() else ()
        near = dict.fromkeys(
            [*self._alike(name), *(self.names.name_for(hit.tool) for hit in found)]
        )
        says = [prompts.UNKNOWN_TOOL.format(name=json.dumps(shown, ensure_ascii=False))]
        if near:
            says.append(prompts.NEAREST_NAMES.format(names=", ".join([*near][:MAX_SUGGESTIONS])))
        if self.plan.is_active:
            says.append(prompts.SEARCH_INSTEAD.format(search=self.search_tool.name))
        return " ".join(says)

    def _alike(self, name: str) -> list[str]:
        """Names of tools that are spelled almost like this one, the most alike first."""
        usable = filter(self.is_allowed, islice(self.engine.catalog, MAX_COMPARED_NAMES))
        named = map(self.names.name_for, usable)
        close = [one for one in named if abs(len(one) - len(name)) <= _MISSPELT_CHARS]
        return get_close_matches(name, close, MAX_SUGGESTIONS, _ALIKE)

    def _fault(self, task: ToolTask) -> str:
        """What is wrong with the arguments; nothing if they fit, or if nobody can tell."""
        if not self.validates_arguments:
            return ""
        try:
            wrong = find_problems(task.tool.input_schema, task.arguments)
        except InvalidSchema:
            # Whoever made the tool will check what he asked for.
            return ""
        return _bad_arguments(self.names.name_for(task.tool), wrong) if wrong else ""


def render_uncovered(needs: Sequence[str]) -> str:
    """What a model is told of the needs that nothing serves; nothing if there are none."""
    shown = [
        need if len(need) <= MAX_QUOTED_SEGMENT_CHARS else f"{need[:MAX_QUOTED_SEGMENT_CHARS]}…"
        for need in needs
    ]
    return prompts.UNCOVERED_SEGMENTS.format(needs="; ".join(shown)) if shown else ""


def _bad_arguments(name: str, wrong: Iterable[str]) -> str:
    return "\n".join([prompts.INVALID_ARGUMENTS.format(name=name), *(f"- {one}" for one in wrong)])


def _queries(arguments: Mapping[str, Any]) -> list[str]:
    """What is asked for: one query, several, or both, in whatever shape a model puts them."""
    several = arguments.get("queries")
    listed = several if isinstance(several, list) else [several]
    asked = [arguments.get("query"), *listed]
    return list(dict.fromkeys(one.strip() for one in asked if isinstance(one, str) and one.strip()))


def _limit(arguments: Mapping[str, Any]) -> int:
    asked = arguments.get("limit")
    if isinstance(asked, bool) or not isinstance(asked, int | float) or asked != asked:
        return DEFAULT_LIMIT
    return int(min(max(asked, 1), MAX_LIMIT))


def _loaded(text: str) -> tuple[str, ...]:
    """The names in the text of a search's answer; none if it is not one of ours, or was cut."""
    try:
        found = json.loads(text)["found"]
        return tuple(str(one["name"]) for one in found)
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
