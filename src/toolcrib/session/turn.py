"""What the calls of one turn mean, and which tools to send. No I/O happens here.

A model's calls are of three kinds: searches, which are answered here; calls of tools, which are to
be run by Toolcrib or by the caller; and invalid calls, which get an error reply with advice. A
`Turn` holds the replies, the calls to run, and the session after them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal

from toolcrib.core import prompts
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.rights import AllowedTools, ToolRights, build_rights
from toolcrib.core.stubs import render_stub
from toolcrib.core.token_count import ToolTokenCounter, count_tool_tokens
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidConfig, InvalidQuery, InvalidSchema
from toolcrib.search.engine import SearchEngine
from toolcrib.search.query.expression import MAX_QUERY_CHARS
from toolcrib.search.results import Hit, SearchResult, find_uncovered
from toolcrib.session.disclosure import DisclosurePlan, parse_found_names, parse_limit, parse_queries
from toolcrib.session.session import ModelAction, Session

Style = Literal["reveal", "dispatch", "code"]

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

# A misspelt name is compared with this many names, if they are of about the same length.
MAX_COMPARED_NAMES: Final = 10_000
_MAX_LENGTH_DIFFERENCE: Final = 3
_MIN_SPELLING_SIMILARITY: Final = 0.85

_PUNCTUATION = re.compile(r"[^\w\s]+")


@dataclass(frozen=True, slots=True)
class ToolTask:
    """A call to run.

    Attributes:
        call: The call as the model made it.
        tool: The tool that it means.
        arguments: The arguments for the tool.
        note: What to tell the model in addition to the result.
        is_validated: Whether the arguments were validated against the schema of the tool.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    note: str = ""
    is_validated: bool = False

    def build_reply(self, text: str, is_error: bool = False) -> CallReply:
        """Return the reply to the call: the result, and the note."""
        return CallReply(self.call, f"{text}\n\n{self.note}" if self.note else text, is_error)


@dataclass(frozen=True, slots=True)
class Turn:
    """The replies to the calls of one turn, the calls to run, and the session after them."""

    session: Session
    replies: tuple[CallReply, ...] = ()
    tasks: tuple[ToolTask, ...] = ()


@dataclass(frozen=True)
class TurnHandler:
    """Handles the turns of one conversation.

    In the style `reveal`, the tools that a search finds are added to the list of tools. In
    `dispatch` the list never changes: a search returns full definitions, and a second tool calls
    the tools that were found. In `code` that second tool runs a script that calls them.

    A search loads the hits that fit and names the others. If `min_score_share` is positive, it loads
    only those whose score is at least this share of the best score. `defined_ids` are the tools whose definitions
    the history contains; in `dispatch` a search returns only their names.
    """

    engine: SearchEngine
    plan: DisclosurePlan
    names: ToolNames
    style: Style = "reveal"
    allowed: AllowedTools | None = None
    count: ToolTokenCounter = field(default=count_tool_tokens)
    validates_arguments: bool = True
    search_name: str = prompts.SEARCH_NAME
    execute_name: str = prompts.EXECUTE_NAME
    min_score_share: float = 0.0
    defined_ids: frozenset[str] = frozenset()

    def start_session(self, budget_tokens: int | None = None) -> Session:
        """Return a session that shows the tools that are visible from the start.

        Raises `InvalidConfig` if these and the search tool do not fit into the budget.
        """
        pinned = filter(self.is_allowed, self.plan.visible_tools)
        session = Session(budget_tokens=budget_tokens, reserved_tokens=self._count_own_tools(budget_tokens))
        return _check_budget(session.pin(pinned, self.count))

    def resume_session(self, session: Session) -> Session:
        """Return an earlier session without stale tools, and with newly pinned ones.

        Its tools are counted again, so that they fit into its budget in this handler's format. A
        newly pinned tool that does not fit is not added.
        """
        pinned = {tool.id: tool for tool in self.plan.visible_tools}
        tools = session.visible_tools(self.engine.catalog, self.is_allowed)
        current = replace(session, reserved_tokens=self._count_own_tools(session.budget_tokens))
        current = _check_budget(current.refit(tools, pinned, self.count))
        new = [tool for tool in pinned.values() if not current.is_revealed(tool) and self.is_allowed(tool)]
        return current.pin(current.select_fitting(new, self.count), self.count) if new else current

    def replay_history(self, turns: Iterable[Sequence[PastCall]], budget_tokens: int | None = None) -> Session:
        """Return the session after a message history, for callers that store nothing else."""
        start = self.start_session(budget_tokens)
        actions = self.actions_from_history(turns)
        return Session.from_history(actions, self.find_tool, start=start, count=self.count)

    def actions_from_history(self, turns: Iterable[Sequence[PastCall]]) -> Iterator[tuple[ModelAction, ...]]:
        """Yield the actions of the model in each turn of a history."""
        for calls in turns:
            yield tuple(map(self._action_from_call, calls))

    def eviction_notes(self, turns: Iterable[Sequence[PastCall]], budget_tokens: int | None = None) -> dict[str, str]:
        """Return the notes for the results of the calls in a history, by call id.

        They are the notes that `ToolTask.note` had when the calls were handled.
        """
        session = self.start_session(budget_tokens)
        notes: dict[str, str] = {}
        for past in (call for calls in turns for call in calls):
            action = self._action_from_call(past)
            later = Session.from_history([[action]], self.find_tool, start=session, count=self.count)
            if action.type == "use" and later.clock != session.clock and later.evicted:
                notes[past.call.id] = self._describe_evicted(later)
            session = later
        return notes

    def tools(self, session: Session) -> tuple[Tool, ...]:
        """Return the tools to send: the search tool, the pinned tools, stubs, then revealed tools.

        What never changes comes first, and revealed tools are appended, so that prompt caches keep
        their prefix. In the style `dispatch` nothing changes. Stubs that do not fit into the budget
        are left out.
        """
        visible = session.visible_tools(self.engine.catalog, self.is_allowed)
        ids = {tool.id for tool in visible} if self._stubs else ()
        stubs = [stub for stub in self._stubs if stub.id not in ids]
        if stubs and session.budget_tokens is not None:
            used = replace(session, reserved_tokens=session.reserved_tokens + session.unpinned_tokens)
            stubs = used.select_fitting(stubs, self.count)
        if not stubs:
            return (*self.own_tools, *visible)
        pinned_ids = {tool.id for tool in self.plan.visible_tools}
        pinned = [tool for tool in visible if tool.id in pinned_ids]
        revealed = [tool for tool in visible if tool.id not in pinned_ids]
        return (*self.own_tools, *pinned, *stubs, *revealed)

    @cached_property
    def own_tools(self) -> tuple[Tool, ...]:
        """The search tool, if any tool is deferred, and in dispatch style the execute tool."""
        if not self.plan.is_active:
            return ()
        return (self.search_tool, self.execute_tool) if self._is_dispatch else (self.search_tool,)

    @cached_property
    def search_tool(self) -> Tool:
        """The tool that finds the others."""
        execute = self._find_free_name(self._execute_name)
        reveal, dispatch = prompts.SEARCH_DESCRIPTION, prompts.DISPATCH_DESCRIPTION
        if self.plan.tier == "stub":
            reveal, dispatch = prompts.STUB_DESCRIPTION, prompts.STUB_DISPATCH_DESCRIPTION
        description = dispatch.format(execute=execute) if self._is_dispatch else reveal
        limit = prompts.LIMIT_DESCRIPTION.format(most=MAX_LIMIT, default=DEFAULT_LIMIT)
        texts = {"type": "array", "items": {"type": "string"}}
        return Tool(
            self._find_free_name(self.search_name),
            self._add_names(description),
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": prompts.QUERY_DESCRIPTION},
                    "queries": {**texts, "description": prompts.QUERIES_DESCRIPTION},
                    "limit": {"type": "integer", "description": limit},
                },
            },
            policy="never",
            annotations={"readOnlyHint": True, "idempotentHint": True},
        )

    @cached_property
    def execute_tool(self) -> Tool:
        """The tool that calls another tool in dispatch style, or runs a script in code style."""
        search, text = self.search_tool.name, {"type": "string"}
        description = prompts.EXECUTE_DESCRIPTION
        properties: dict[str, Any] = {
            "tool_name": {**text, "description": prompts.EXECUTE_TOOL_DESCRIPTION.format(search=search)},
            "tool_input": {"type": "object", "description": prompts.EXECUTE_INPUT_DESCRIPTION},
        }
        if self.style == "code":
            description = prompts.CODE_DESCRIPTION
            properties = {"code": {**text, "description": prompts.CODE_PARAMETER}}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return Tool(self._find_free_name(self._execute_name), description.format(search=search), schema, policy="never")

    def is_allowed(self, tool: Tool) -> bool:
        """Return whether the caller may use a tool."""
        return self._rights.is_allowed(tool)

    def find_tool(self, name: str, namespace: str = "") -> Tool | None:
        """Return the tool of a name, if there is one and the caller may use it.

        An unknown namespace is taken for the name of the server.
        """
        tool = self.names.find_tool(name)
        if tool is None and namespace:
            tool = self.names.find_tool(f"{namespace}{SERVER_SEPARATOR}{name}")
        return tool if tool and self.is_allowed(tool) else None

    def search(self, query: str, limit: int) -> SearchResult:
        """Search the tools that the caller may use."""
        query = query[:MAX_QUERY_CHARS]
        try:
            return self.engine.search(query, limit=limit, allowed=self.allowed)
        except InvalidQuery:
            # Models write sentences, so a malformed expression is searched as plain words.
            words = _PUNCTUATION.sub(" ", query).lower()
            return self.engine.search(words, limit=limit, allowed=self.allowed)

    def handle_calls(self, session: Session, calls: Sequence[ToolCall], loaded: Iterable[str] = ()) -> Turn:
        """Return what these calls mean. A call to a tool that was not revealed is valid.

        `loaded` are the names of tools that the provider itself has found in this turn.
        """
        session = session.drop_stale(self.engine.catalog, self.is_allowed)
        known = [tool for tool in map(self.find_tool, loaded) if tool]
        if known and not self._is_dispatch:
            session = session.reveal(known, self.count)
        replies: list[CallReply] = []
        tasks: list[ToolTask] = []
        searches = session.consecutive_searches
        for call in calls:
            if self._is_search(call):
                session, reply = self._answer_search(session, call, searches)
                replies.append(reply)
                continue
            task = self._resolve_call(call)
            if isinstance(task, CallReply):
                replies.append(task)
                continue
            if not self._is_dispatch:
                later = session.reveal([task.tool], self.count)
                note = "" if later is session else self._describe_evicted(later)
                session, task = later, replace(task, note=note)
            task, problems = self._validate(task)
            if problems:
                text = _render_problems(self.names.name_for(task.tool), problems)
                replies.append(task.build_reply(text, is_error=True))
            else:
                tasks.append(task)
        session = session.end_turn(bool(calls) and all(map(self._is_search, calls)))
        return Turn(session, tuple(replies), tuple(tasks))

    @cached_property
    def _rights(self) -> ToolRights:
        return build_rights(self.allowed)

    @property
    def _is_dispatch(self) -> bool:
        return self.style != "reveal"

    @property
    def _execute_name(self) -> str:
        return prompts.CODE_NAME if self.style == "code" else self.execute_name

    @cached_property
    def _stubs(self) -> tuple[Tool, ...]:
        """The deferred tools without their parameters, if the tier shows stubs."""
        if self.plan.tier != "stub":
            return ()
        deferred = filter(self.is_allowed, self.plan.deferred_tools)
        return tuple(tool.replace(id=tool.id, input_schema=dict(OPEN_SCHEMA)) for tool in deferred)

    def _add_names(self, description: str) -> str:
        """Return the description with the names of the deferred tools, if the tier shows names."""
        if self.plan.tier != "name":
            return description
        deferred = filter(self.is_allowed, self.plan.deferred_tools)
        names = list(map(self.names.name_for, deferred))
        if len(names) > MAX_LISTED_NAMES:
            names[MAX_LISTED_NAMES:] = ["…"]
        return f"{description} {prompts.SOURCE_NAMES.format(names=', '.join(names))}"

    def _find_free_name(self, name: str) -> str:
        """Return the name, with underscores before it if a tool of the catalog has it."""
        while self.names.find_tool(name):
            name = f"_{name}"
        return name

    def _is_search(self, call: ToolCall) -> bool:
        return self.plan.is_active and (call.is_search or call.name == self.search_tool.name)

    def _action_from_call(self, past: PastCall) -> ModelAction:
        call = past.call
        if past.is_hosted_search:
            return ModelAction("load", () if self._is_dispatch else past.names)
        if not self._is_search(call):
            tool = self.find_tool(call.name, call.namespace)
            return ModelAction("use", (tool.id,) if tool and not self._is_dispatch else ())
        names = past.names or parse_found_names(past.text)
        return ModelAction("search", () if self._is_dispatch else names)

    def _answer_search(self, session: Session, call: ToolCall, searches: int) -> tuple[Session, CallReply]:
        """Return the session with the found tools revealed, and the reply to the search."""
        if searches >= MAX_SEARCHES:
            text = prompts.TOO_MANY_SEARCHES.format(count=searches)
            return session, CallReply(call, text, is_error=True)
        arguments = call.arguments or {}
        queries = parse_queries(arguments)
        if not queries:
            return session, CallReply(call, prompts.NO_QUERY, is_error=True)
        limit = parse_limit(arguments, DEFAULT_LIMIT, MAX_LIMIT)
        results = [self.search(query, limit) for query in queries[:MAX_QUERIES]]
        fitting = {hit.tool.id: hit.tool for result in results for hit in self._select_hits(result)}
        loaded = tuple(session.select_fitting(fitting.values(), self.count))
        unloaded = [tool for tool in fitting.values() if tool not in loaded]
        others = {hit.tool.id: hit.tool for result in results for hit in result if hit.tool.id not in fitting}
        nearest = [*others.values()][:MAX_SUGGESTIONS]
        if not self._is_dispatch:
            session = session.reveal(loaded, self.count)
        messages = [prompts.TOO_MANY_QUERIES.format(most=MAX_QUERIES)] if len(queries) > MAX_QUERIES else []
        messages += self._describe_loaded(session, loaded) if loaded else []
        messages += self._describe_unloaded(session, unloaded)
        if not fitting:
            no_good_match = prompts.NONE_FITS if self.min_score_share else prompts.NO_GOOD_MATCH
            messages.append(no_good_match if nearest else prompts.NO_MATCH)
        if nearest and (fitting or self.min_score_share):
            messages.append(prompts.SEARCH_NEAREST)
        messages.append(render_uncovered(find_uncovered(results)))
        # The names in this JSON are how a history is replayed.
        answer: dict[str, Any] = {"found": [self._render_tool(tool) for tool in loaded]}
        if nearest:
            answer["nearest"] = [self._render_name(tool) for tool in nearest]
        answer["message"] = " ".join(filter(None, messages))
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return session, CallReply(call, text, found_tools=loaded)

    def _select_hits(self, result: SearchResult) -> Iterator[Hit]:
        """Yield the hits of a result to load."""
        least = self.min_score_share * max((hit.score for hit in result), default=0.0)
        return (hit for hit in result.fitting_hits if hit.score >= least)

    def _describe_loaded(self, session: Session, loaded: Iterable[Tool]) -> list[str]:
        if not self._is_dispatch:
            return [prompts.TOOLS_LOADED, self._describe_evicted(session)]
        defined = [tool for tool in loaded if tool.id in self.defined_ids]
        known = self._list_names(prompts.DEFINED_BEFORE, defined) if defined else ""
        return [prompts.CALL_THROUGH.format(execute=self.execute_tool.name), known]

    def _render_tool(self, tool: Tool) -> dict[str, Any]:
        if self._is_dispatch and tool.id not in self.defined_ids:
            name = self.names.name_for(tool)
            if self.style == "code":
                return {"name": name, "call": render_stub(tool), "description": tool.description}
            return {"name": name, "description": tool.description, "input_schema": tool.input_schema}
        return self._render_name(tool)

    def _render_name(self, tool: Tool) -> dict[str, Any]:
        """Return the name of a tool and the beginning of its description."""
        name = self.names.name_for(tool)
        return {"name": name, "description": _shorten(tool.description, MAX_DESCRIPTION_CHARS - 1, 1)}

    def _describe_unloaded(self, session: Session, tools: Iterable[Tool]) -> list[str]:
        """Return what to tell the model about tools that were found and do not fit into the budget."""
        groups: dict[str, list[Tool]] = {prompts.NO_ROOM_TO_LOAD: [], prompts.TOO_LARGE_TO_LOAD: []}
        for tool in tools:
            fits_alone = session.select_fitting([tool], self.count)
            groups[prompts.NO_ROOM_TO_LOAD if fits_alone else prompts.TOO_LARGE_TO_LOAD].append(tool)
        return [self._list_names(text, group) for text, group in groups.items() if group]

    def _list_names(self, text: str, tools: Iterable[Tool]) -> str:
        return text.format(names=", ".join(map(self.names.name_for, tools)))

    def _count_own_tools(self, budget_tokens: int | None) -> int:
        """Return the tokens of the search tool and the execute tool; they count only with a budget."""
        return 0 if budget_tokens is None else sum(map(self.count, self.own_tools))

    def _describe_evicted(self, session: Session) -> str:
        """Return what to tell the model about evicted tools, or an empty text."""
        names = ", ".join(map(self._name_for_id, session.evicted))
        return prompts.EVICTED_TOOLS.format(names=names) if names else ""

    def _name_for_id(self, id: str) -> str:
        tool = self.engine.catalog.get(id)
        return self.names.name_for(tool) if tool else id

    def _resolve_call(self, call: ToolCall) -> ToolTask | CallReply:
        """Return the task of a call, or an error reply."""
        name, arguments = call.name, call.arguments
        if self._is_dispatch and self.plan.is_active and name == self.execute_tool.name:
            if arguments is None:
                return CallReply(call, prompts.ARGUMENTS_NOT_JSON.format(name=name), is_error=True)
            problems = find_problems(self.execute_tool.input_schema, arguments)
            if problems:
                return CallReply(call, _render_problems(name, problems), is_error=True)
            if self.style == "code":
                return ToolTask(call, self.execute_tool, arguments)
            name, arguments = arguments["tool_name"], arguments["tool_input"]
        tool = self.find_tool(name, call.namespace)
        if tool is None:
            return CallReply(call, self._describe_unknown(name), is_error=True)
        if arguments is None:
            text = prompts.ARGUMENTS_NOT_JSON.format(name=self.names.name_for(tool))
            return CallReply(call, text, is_error=True)
        return ToolTask(call, tool, arguments)

    def _validate(self, task: ToolTask) -> tuple[ToolTask, Sequence[str]]:
        """Return the task, marked as validated, and the problems of its arguments."""
        if not self.validates_arguments:
            return task, ()
        try:
            problems = find_problems(task.tool.input_schema, task.arguments)
        except InvalidSchema as error:
            return task, (str(error),)
        return replace(task, is_validated=True), problems

    def _describe_unknown(self, name: str) -> str:
        words = _PUNCTUATION.sub(" ", name.replace("_", " "))
        result = self.search(words, MAX_SUGGESTIONS) if words.strip() else ()
        found = [self.names.name_for(hit.tool) for hit in result]
        nearest = [*dict.fromkeys([*self._similar_names(name), *found])][:MAX_SUGGESTIONS]
        quoted = json.dumps(_shorten(name, MAX_QUOTED_NAME_CHARS), ensure_ascii=False)
        messages = [prompts.UNKNOWN_TOOL.format(name=quoted)]
        if nearest:
            messages.append(prompts.NEAREST_NAMES.format(names=", ".join(nearest)))
        if self.plan.is_active:
            messages.append(prompts.SEARCH_INSTEAD.format(search=self.search_tool.name))
        return " ".join(messages)

    def _similar_names(self, name: str) -> list[str]:
        """Return the names of tools with almost the same spelling, the most similar first."""
        allowed = filter(self.is_allowed, islice(self.engine.catalog, MAX_COMPARED_NAMES))
        names = map(self.names.name_for, allowed)
        close = [other for other in names if abs(len(other) - len(name)) <= _MAX_LENGTH_DIFFERENCE]
        return get_close_matches(name, close, MAX_SUGGESTIONS, _MIN_SPELLING_SIMILARITY)


def render_uncovered(segments: Sequence[str]) -> str:
    """Return what to tell the model about segments that no tool covers, or an empty text."""
    quoted = [_shorten(segment, MAX_QUOTED_SEGMENT_CHARS) for segment in segments]
    return prompts.UNCOVERED_SEGMENTS.format(needs="; ".join(quoted)) if quoted else ""


def _check_budget(session: Session) -> Session:
    """Return the session. Raises `InvalidConfig` if what is always sent exceeds its budget."""
    if session.budget_tokens is not None and session.fixed_tokens > session.budget_tokens:
        raise InvalidConfig(
            f"the search tool and the pinned tools take {session.fixed_tokens:,} tokens, more than the budget of "
            f"{session.budget_tokens:,}; raise the budget, or pin fewer tools"
        )
    return session


def _shorten(text: str, max_chars: int, ellipsis_chars: int = 0) -> str:
    """Return the text, or its first characters and an ellipsis if it is longer."""
    return text if len(text) <= max_chars + ellipsis_chars else f"{text[:max_chars]}…"


def _render_problems(name: str, problems: Iterable[str]) -> str:
    heading = prompts.INVALID_ARGUMENTS.format(name=name)
    return "\n".join([heading, *(f"- {problem}" for problem in problems)])
