"""Toolcrib for programs that write their own agent loop.

toolcrib = Toolcrib([...])             # tools in any format, mixed
session = toolcrib.session()           # one conversation
session.tools("openai_chat")           # what to send with the next request
session.handle("openai_chat", reply)   # what to add to the messages: searches are answered and
                                       # registered functions are run
await session.handle_async(...)        # the same in an event loop; tools_async too
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from threading import RLock
from typing import Any, Protocol, get_args, runtime_checkable

from toolcrib.adapters import anthropic, wire_formats
from toolcrib.adapters.wire_formats import SEARCH_WIRE_FORMATS, SearchMode, count_wire_tokens, get_wire_format
from toolcrib.code.library import ScriptRunner
from toolcrib.core import prompts
from toolcrib.core.callbacks import discard_awaitable, is_async
from toolcrib.core.calls import CallReply, CallResult, ToolCall, ToolRunner
from toolcrib.core.catalog import Catalog, ToolSource, list_entries
from toolcrib.core.rights import AllowedTools, build_rights
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.core.worker_thread import run_in_thread
from toolcrib.errors import InvalidConfig, InvalidMessage, InvalidTool
from toolcrib.registry.execution import describe_exception, render_value
from toolcrib.registry.registry import Registry
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import Style, ToolTask, TurnHandler
from toolcrib.tool_sources import check_tool_schema, collect_tools, find_toolsets


@runtime_checkable
class AsyncRunner(Protocol):
    """A runner that can also run tools in the event loop of the caller."""

    async def call_async(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run a tool and return its result."""


class Toolcrib:
    """A catalog of tools, an engine that searches it, and the runners of the tools.

    Entries are Python functions, tools in any known format, `Tool` objects, and toolsets such as a
    `Registry`, mixed and nested in lists.
    """

    def __init__(
        self,
        tools: ToolSource = (),
        *,
        runner: ToolRunner | None = None,
        disclosure: Disclosure | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
    ) -> None:
        if not isinstance(disclosure, Disclosure | None):
            raise InvalidConfig(f"disclosure is a Disclosure, not {disclosure!r}; write Disclosure(…)")
        if not isinstance(runner, ToolRunner | None):
            raise InvalidConfig(f"runner is an object with `has_tool` and `call`, not {runner!r}")
        if not callable(engine):
            raise InvalidConfig(f"engine is a function that returns a SearchEngine for a catalog, not {engine!r}")
        entries = list_entries(tools)
        self.disclosure = disclosure or Disclosure()
        functions = Registry()
        toolsets = list(find_toolsets(entries))
        self._registries = {toolset: toolset.catalog for toolset in toolsets if isinstance(toolset, Registry)}
        self._runners: list[ToolRunner] = [
            functions,
            *(toolset for toolset in toolsets if not isinstance(toolset, Registry)),
            *([runner] if runner is not None else []),
        ]
        self._lock = RLock()
        self._handler = self._create_handler(engine(Catalog(collect_tools(entries, functions))))
        # The registry that runs an id. If several have it, the first one does.
        self._owners = {
            tool.id: registry
            for registry in self._registries
            for tool in registry.catalog
            if self.catalog.get(tool.id) is tool
        }

    def __repr__(self) -> str:
        return f"Toolcrib({len(self.catalog)} tools)"

    @property
    def catalog(self) -> Catalog:
        """All tools."""
        return self.engine.catalog

    @property
    def engine(self) -> SearchEngine:
        """The engine that searches the catalog."""
        return self._handler.engine

    def update(self, catalog: Catalog) -> None:
        """Replace the catalog. Sessions keep the revealed tools that are still in it."""
        if not isinstance(catalog, Catalog):
            raise InvalidTool("update takes a Catalog; build one with `toolcrib.catalog.with_tools([…])`")
        with self._lock:
            difference = catalog.difference(self.catalog)
            for tool in (*difference.added, *difference.changed):
                check_tool_schema(tool)
            self._handler = self._create_handler(self.engine.with_catalog(catalog))

    def sync_registries(self) -> None:
        """Apply the changes of the registries to the catalog. Sessions call this themselves.

        An id that belongs to another entry keeps belonging to it until its registry drops it.
        """
        with self._lock:
            before = self._registries
            now = {registry: registry.catalog for registry in before}
            if all(now[registry] is before[registry] for registry in now):
                return
            dropped = {id for id, owner in self._owners.items() if id not in now[owner]}
            owners = {id: owner for id, owner in self._owners.items() if id not in dropped}
            catalog = self.catalog.without(id for id in dropped if id in self.catalog)
            new: list[Tool] = []
            for registry, tools in now.items():
                for tool in tools:
                    if tool is before[registry].get(tool.id) and tool.id not in dropped:
                        continue
                    if tool.id not in catalog:
                        owners.setdefault(tool.id, registry)
                    if owners.get(tool.id) is registry:
                        new.append(tool)
            self.update(catalog.with_tools(new))
            self._registries, self._owners = now, owners

    def session(
        self,
        *,
        style: Style = "reveal",
        budget: int | None = None,
        allowed: AllowedTools | None = None,
        native: wire_formats.NativeSearch = False,
        model: str = "",
    ) -> ToolcribSession:
        """Return a new conversation.

        Args:
            style: "reveal" adds the tools that a search finds to the list, "dispatch" never
                changes the list, and in "code" the model calls tools in scripts.
            budget: How many tokens the tools of a request may take. Tools that do not fit are
                named to the model and not loaded.
            allowed: The ids of the tools that this caller may use, or a function that is called
                with each tool.
            native: True lets the provider search, "client" answers in the provider's own format,
                and "auto" does what the `model` supports. "bm25" and "regex" select one of the two
                searches of Anthropic.
            model: The id of the model, for "auto".
        """
        if style not in get_args(Style):
            raise InvalidConfig(f"no style {style!r}; the styles are {', '.join(get_args(Style))}")
        budget = validate_budget(budget)
        search_modes = wire_formats.select_search_modes(native, model)
        if budget is not None and search_modes:
            if native != "auto":
                raise InvalidConfig("the provider decides what it loads, so use either a budget or native search")
            search_modes = {}
        self.sync_registries()
        if allowed is not None and not callable(allowed):
            if not isinstance(allowed, Collection):
                raise InvalidConfig(
                    f"allowed is a set of ids, or a function that is called with each tool, not {allowed!r}"
                )
            build_rights(allowed)
        return ToolcribSession(self, style, budget, allowed, search_modes)

    def build_turn_handler(
        self, style: Style, allowed: AllowedTools | None, budget: int | None = None, wire: str = ""
    ) -> TurnHandler:
        """Return a turn handler over the current catalog. The budget counts tools in a wire format."""
        handler = replace(self._handler, style=style, allowed=allowed)
        if budget is None:
            return handler
        text_counter = self.disclosure.count
        count = (
            partial(count_wire_tokens, wire, text_counter) if wire else partial(count_tool_tokens, count=text_counter)
        )
        return replace(handler, count=count, plan=self.disclosure.plan_within(self.catalog, budget, count))

    def can_run(self, tool: Tool) -> bool:
        """Return whether one of the runners runs this tool."""
        return self._find_runner(tool) is not None

    def run(self, task: ToolTask) -> CallReply:
        """Run one call. Exceptions of the tool become replies to the model."""
        runner = self._find_runner(task.tool)
        if runner is None:
            return _reply_not_run(task)
        try:
            if isinstance(runner, Registry):
                result = runner.call(task.tool.id, task.arguments, validated_for=_validated(task))
            else:
                result = runner.call(task.tool.id, task.arguments)
        except Exception as error:
            return _reply_failed(task, error)
        if discard_awaitable(result):
            raise InvalidConfig(f"the runner of {task.tool.id!r} is async; use handle_async")
        return _reply_result(task, result)

    async def run_async(self, task: ToolTask) -> CallReply:
        """Do the same as `run` in an event loop; a runner without async support gets a thread."""
        runner = self._find_runner(task.tool)
        if runner is None:
            return _reply_not_run(task)
        name, arguments = task.tool.id, task.arguments
        try:
            if isinstance(runner, Registry):
                result = await runner.call_async(name, arguments, validated_for=_validated(task))
            elif isinstance(runner, AsyncRunner):
                result = await runner.call_async(name, arguments)
            else:
                result = await asyncio.to_thread(runner.call, name, arguments)
                result = await result if isawaitable(result) else result
        except Exception as error:
            return _reply_failed(task, error)
        return _reply_result(task, result)

    def _find_runner(self, tool: Tool) -> ToolRunner | None:
        if tool.id in (owners := self._owners):
            return owners[tool.id]
        return next((runner for runner in self._runners if _has_tool(runner, tool.id)), None)

    def _create_handler(self, engine: SearchEngine) -> TurnHandler:
        """Return the engine and what depends on its catalog as one value, replaced atomically."""
        plan = self.disclosure.plan(engine.catalog)
        return TurnHandler(engine, plan, ToolNames(engine.catalog))


class ToolcribSession:
    """One conversation with a model. Only its `state` has to be saved."""

    def __init__(
        self,
        toolcrib: Toolcrib,
        style: Style,
        budget: int | None,
        allowed: AllowedTools | None,
        search_modes: dict[str, SearchMode],
    ) -> None:
        self._toolcrib = toolcrib
        self._style: Style = style
        self._allowed = allowed
        self._search_modes = search_modes
        self._budget = budget
        self._wire = ""
        self._handler = toolcrib.build_turn_handler(style, allowed, budget)
        self._replies: tuple[CallReply, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        # An async check can't be awaited here: pinned tools are added at the first use.
        self._is_stale = callable(allowed) and is_async(allowed)
        self.state = Session(budget_tokens=budget) if self._is_stale else self._handler.start_session(budget)
        self._runner = ScriptRunner(toolcrib, allowed)
        # By the ids that the caller sees, which may differ from those of the calls.
        self._pending: dict[str, ToolTask] = {}

    def __repr__(self) -> str:
        return f"ToolcribSession({len(self.state.revealed)} tools shown, {len(self._pending)} calls pending)"

    @property
    def pending(self) -> tuple[ToolTask, ...]:
        """The calls that the caller has to run, each with a unique id.

        Some models send calls without an id, or with the same one. These get an id from Toolcrib,
        which is never sent to the model.
        """
        return tuple(replace(task, call=replace(task.call, id=id)) for id, task in self._pending.items())

    # Messages are typed as `Any`: each SDK has its own types for the same dictionaries, and type
    # checkers would reject ours for all of them.

    def tools(self, wire: str) -> list[Any]:
        """Return the tools to send with the next request, in a provider's format."""
        wire_format = get_wire_format(wire)
        handler = self._update_handler(wire)
        search_mode = self._search_mode(wire)
        if search_mode == "hosted":
            return SEARCH_WIRE_FORMATS[wire].hosted_search_to_wire(*_allowed_plan(handler))
        if search_mode == "hosted_regex":
            return anthropic.hosted_search_to_wire(*_allowed_plan(handler), variant="regex")
        if search_mode == "client":
            own_tools = handler.own_tools
            return SEARCH_WIRE_FORMATS[wire].client_search_to_wire(own_tools, *_allowed_plan(handler))
        return wire_format.tools_to_wire(handler.tools(self.state))

    async def tools_async(self, wire: str) -> list[Any]:
        """Do the same as `tools` in an event loop, where an async `allowed` is awaited."""
        return await run_in_thread(self.tools, wire)

    def handle(self, wire: str, reply: object) -> list[Any]:
        """Return what to add to the messages: the reply itself, and the results of its calls.

        Searches are answered and registered tools are run. Other calls are in `pending`: run them
        and pass their results to `answer`, which then returns all results of the turn.
        """
        tasks = self._handle_calls(wire, reply)
        return self._finish_turn(wire, reply, map(self._runner.run, tasks))

    async def handle_async(self, wire: str, reply: object) -> list[Any]:
        """Do the same as `handle` in an event loop. The calls of a turn run concurrently.

        An async `allowed` is awaited.
        """
        # A search would block the event loop.
        tasks = await run_in_thread(self._handle_calls, wire, reply)
        replies = await asyncio.gather(*map(self._runner.run_async, tasks))
        return self._finish_turn(wire, reply, replies)

    def answer(self, wire: str, results: Mapping[str, object] | None = None) -> list[Any]:
        """Return the messages with all results of the last turn.

        `results` are those of the calls in `pending`, by call id. A result is text, a `CallResult`,
        or anything that can be written as JSON.
        """
        get_wire_format(wire)
        rendered = self._render_results({} if results is None else results)
        if not self._pending:
            # `handle` has returned the results.
            return []
        for id, task in self._pending.items():
            result = rendered.get(id)
            reply = _reply_result(task, result) if result else _reply_not_run(task)
            self._replies += (reply,)
        self._pending = {}
        return self._replies_to_wire(wire)

    def replay(self, wire: str, messages: Iterable[object]) -> None:
        """Set the state to that after a message history, for callers that store nothing else."""
        turns = get_wire_format(wire).turns_from_wire(messages)
        handler = self._update_handler(wire)
        self.state = handler.replay_history(turns, self._budget)

    async def replay_async(self, wire: str, messages: Iterable[object]) -> None:
        """Do the same as `replay` in an event loop, where an async `allowed` is awaited."""
        await run_in_thread(self.replay, wire, messages)

    def save(self) -> dict[str, Any]:
        """Return the session as JSON."""
        return self.state.to_dict()

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Continue a saved session, with the budget of this one.

        Tools that were changed or lost their permission are dropped; tools that a new session
        would show are added. An async `allowed` is awaited when the session is used next.
        """
        self.state = replace(Session.from_dict(stored), budget_tokens=self._budget)
        self._is_stale = True
        if not (callable(self._allowed) and is_async(self._allowed)):
            self._update_handler(self._wire)

    def _render_results(self, results: Mapping[str, object]) -> dict[str, CallResult]:
        if not isinstance(results, Mapping):
            raise InvalidMessage("results are given by call id; write {task.call.id: result}")
        for id in results:
            if id not in self._pending:
                known = ", ".join(self._pending) or "none"
                raise InvalidMessage(f"no call {id!r} is pending; the pending ones are {known}")
        return {id: _render_result(id, value) for id, value in results.items()}

    def _handle_calls(self, wire: str, reply: object) -> list[ToolTask]:
        """Update the state from a reply, and return the calls that Toolcrib runs."""
        calls = wire_formats.parse_calls(wire, reply)
        handler = self._update_handler(wire)
        search_format = SEARCH_WIRE_FORMATS.get(wire)
        loaded_names = search_format.loaded_names_from_wire(reply) if search_format else ()
        turn = handler.handle_calls(self.state, calls, loaded_names)
        self.state = turn.session
        tasks = [task for task in turn.tasks if self._runner.can_run(task.tool)]
        self._calls = tuple(calls)
        self._replies = turn.replies
        self._pending = _assign_ids(task for task in turn.tasks if task not in tasks)
        return tasks

    def _finish_turn(self, wire: str, reply: object, replies: Iterable[CallReply]) -> list[Any]:
        """Return the reply of the model as messages, with the results unless calls are pending."""
        self._replies += tuple(replies)
        messages = get_wire_format(wire).reply_to_messages(reply)
        is_complete = self._calls and not self._pending
        return [*messages, *self._replies_to_wire(wire)] if is_complete else messages

    def _update_handler(self, wire: str) -> TurnHandler:
        """Return a handler for a format over the current catalog.

        The session is resumed on it if the catalog has changed, or, with a budget, the format.
        """
        # Raises an error for an async check of a sync caller, even if no tool has to be checked now.
        build_rights(self._allowed)
        self._toolcrib.sync_registries()
        is_other_format = wire != self._wire and self._budget is not None
        if self._handler.engine is not self._toolcrib.engine or is_other_format:
            self._handler = self._toolcrib.build_turn_handler(self._style, self._allowed, self._budget, wire)
            self._wire = wire
            self._is_stale = True
        if self._is_stale:
            is_new = self.state == Session(budget_tokens=self._budget)
            handler = self._handler
            self.state = handler.start_session(self._budget) if is_new else handler.resume_session(self.state)
            self._is_stale = False
        return self._handler

    def _search_mode(self, wire: str) -> SearchMode:
        is_active = self._handler.plan.is_active
        return self._search_modes.get(wire, "ours") if is_active else "ours"

    def _replies_to_wire(self, wire: str) -> list[dict[str, Any]]:
        """Return all results of a turn, in the order of its calls."""
        places = {id(call): place for place, call in enumerate(self._calls)}
        ordered = sorted(self._replies, key=lambda reply: places[id(reply.call)])
        if self._search_mode(wire) == "client":
            return SEARCH_WIRE_FORMATS[wire].client_answers_to_wire(ordered)
        return get_wire_format(wire).answers_to_wire(ordered)


def validate_budget(budget: int | None) -> int | None:
    """Return a token budget; None means unlimited. Raises `InvalidConfig` if it is below 1."""
    if budget is not None and (not isinstance(budget, int) or budget is True or budget < 1):
        raise InvalidConfig(f"budget is a number of tokens, from 1, not {budget!r}")
    return budget


def _has_tool(runner: ToolRunner, id: str) -> bool:
    """Return whether a runner runs a tool: only if it returns True."""
    answer: object = runner.has_tool(id)
    discard_awaitable(answer)
    return answer is True


def _allowed_plan(handler: TurnHandler) -> tuple[list[Tool], list[Tool]]:
    """Return the visible and the deferred tools that the caller may use."""
    plan = handler.plan
    return (list(filter(handler.is_allowed, plan.visible_tools)), list(filter(handler.is_allowed, plan.deferred_tools)))


def _assign_ids(tasks: Iterable[ToolTask]) -> dict[str, ToolTask]:
    """Return tasks by call id. A missing or repeated id is replaced by a unique one."""
    by_id: dict[str, ToolTask] = {}
    for number, task in enumerate(tasks, 1):
        id = task.call.id
        while not id or id in by_id:
            id = f"{id or task.tool.name} {number}"
        by_id[id] = task
    return by_id


def _validated(task: ToolTask) -> Tool | None:
    """Return the definition that the arguments were validated against, if they were."""
    return task.tool if task.is_validated else None


def _render_result(id: str, value: object) -> CallResult:
    """Return a result as text, rendered like that of a registered function."""
    try:
        if isinstance(value, CallResult):
            return CallResult(render_value(value.text), value.is_error)
        return CallResult(render_value(value))
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(
            f"the result of call {id!r} cannot be written as JSON: {error}; pass it as text"
        ) from error


def _reply_result(task: ToolTask, result: object) -> CallReply:
    if not isinstance(result, CallResult):
        raise InvalidConfig(
            f"the runner of {task.tool.id!r} returned a {type(result).__name__}; let its `call` return CallResult(text)"
        )
    return task.build_reply(result.text, result.is_error)


def _reply_not_run(task: ToolTask) -> CallReply:
    return task.build_reply(prompts.TOOL_NOT_RUN.format(name=task.tool.name), is_error=True)


def _reply_failed(task: ToolTask, error: Exception) -> CallReply:
    text = prompts.TOOL_FAILED.format(name=task.tool.name, reason=describe_exception(error))
    return task.build_reply(text, is_error=True)
