"""Toolcrib: what a program holds that writes its own agent loop.

crib = Toolcrib([...])                 tools in any format, mixed
session = crib.session()               one conversation
session.tools("openai_chat")           what to send with the next request
session.handle("openai_chat", reply)   what to send back, searches answered and our own tools run
                                       (in an event loop: await session.handle_async)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from toolcrib.adapters.wire_formats import SearchMode, WireFormat, get_wire_format
from toolcrib.core import prompts
from toolcrib.core.calls import CallReply, CallResult, ToolCall, ToolRunner
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import InvalidConfig, InvalidMessage, InvalidTool
from toolcrib.registry.execution import render_value
from toolcrib.registry.registry import Registry
from toolcrib.search.engine import AllowedTools, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.hosted_search import find_hosting_provider
from toolcrib.session.session import Session
from toolcrib.session.turn import Style, ToolTask, TurnHandler
from toolcrib.tool_sources import collect_tools, find_toolsets

NativeSearch = bool | Literal["client", "auto"]

_PROVIDERS: Final = {"anthropic": "anthropic", "openai": "openai_responses"}


@runtime_checkable
class AsyncRunner(Protocol):
    """A runner that can also run tools in the event loop of whoever asks, such as a registry."""

    async def call_async(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Run it."""


class Toolcrib:
    """Tools behind a counter: a catalog, an engine over it, what is shown of it, and who runs it.

    Entries are Python functions, tools in any known format, `Tool` objects, and toolsets such as a
    `Registry`, mixed and nested in lists.
    """

    def __init__(
        self,
        tools: Iterable[object] = (),
        *,
        runner: ToolRunner | None = None,
        disclosure: Disclosure | None = None,
        engine: Callable[[Catalog], SearchEngine] = SearchEngine,
    ) -> None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise InvalidTool(
                "tools come in a list, also if there is only one; write Toolcrib([…])"
            )
        if not isinstance(disclosure, Disclosure | None):
            raise InvalidConfig(
                f"disclosure is a Disclosure, not {disclosure!r}; write Disclosure(…)"
            )
        listed = list(tools)
        self.disclosure = disclosure or Disclosure()
        functions = Registry()
        given = list(find_toolsets(listed))
        self._registries = {one: one.catalog for one in given if isinstance(one, Registry)}
        self._runners: list[ToolRunner] = [
            functions,
            *(one for one in given if not isinstance(one, Registry)),
            *([runner] if runner is not None else []),
        ]
        self._changing = RLock()
        self._rules = self._rules_of(engine(Catalog(collect_tools(listed, functions))))
        # Which registry runs an id: others may have it too, but were later.
        self._owners = {
            tool.id: registry
            for registry in self._registries
            for tool in registry.catalog
            if self.catalog.get(tool.id) is tool
        }

    @property
    def catalog(self) -> Catalog:
        """All tools there are."""
        return self.engine.catalog

    @property
    def engine(self) -> SearchEngine:
        """What searches them."""
        return self._rules.engine

    def update(self, catalog: Catalog) -> None:
        """Go on with another catalog. Sessions keep what they have shown, as far as it is there."""
        if not isinstance(catalog, Catalog):
            raise InvalidTool(
                "what to go on with is a Catalog; begin with `crib.catalog.with_tools([…])`"
            )
        with self._changing:
            self._rules = self._rules_of(self.engine.with_catalog(catalog))

    def sync_registries(self) -> None:
        """Take in what has come and gone in the registries since. Every session does so by itself.

        An id that is another entry's already stays that one's, until a registry drops it.
        """
        with self._changing:
            before = self._registries
            now = {registry: registry.catalog for registry in before}
            if all(now[registry] is before[registry] for registry in now):
                return
            free = {id for id, owner in self._owners.items() if id not in now[owner]}
            owners = {id: owner for id, owner in self._owners.items() if id not in free}
            catalog = self.catalog.without(id for id in free if id in self.catalog)
            new: list[Tool] = []
            for registry, tools in now.items():
                for tool in tools:
                    if tool is before[registry].get(tool.id) and tool.id not in free:
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
        native: NativeSearch = False,
        model: str = "",
    ) -> ToolcribSession:
        """A new conversation.

        `style` is "reveal" (found tools join the list) or "dispatch" (the list never changes).
        `budget` is how many tokens the revealed tools may take. `allowed` are the ids of the tools
        this caller may use, or a question to ask of each. `native` hands the search over to the
        provider (True), answers in the provider's own shape ("client"), or does what the model can
        ("auto", which needs the `model`).
        """
        if style not in get_args(Style):
            raise InvalidConfig(f"no style {style!r}; the styles are {', '.join(get_args(Style))}")
        budget = validate_budget(budget)
        self.sync_registries()
        if allowed is not None and not callable(allowed) and not isinstance(allowed, Collection):
            raise InvalidConfig(
                f"allowed is a set of ids, or a question to ask of each tool, not {allowed!r}"
            )
        return ToolcribSession(self, style, budget, allowed, _search_by(native, model))

    def build_turn_handler(self, style: Style, allowed: AllowedTools | None) -> TurnHandler:
        """The rules of a conversation over the catalog as it is now."""
        return replace(self._rules, style=style, allowed=allowed)

    def can_run(self, tool: Tool) -> bool:
        """Whether a call to this tool is ours to run."""
        return self._runner_of(tool) is not None

    def run(self, task: ToolTask) -> CallReply:
        """Run one call. Whatever goes wrong in the tool is told to the model, not raised."""
        runner = self._runner_of(task.tool)
        if runner is None:
            return _not_run(task)
        try:
            result = runner.call(task.tool.id, task.arguments)
        except Exception as fault:
            return _failed(task, fault)
        return _ran(task, result)

    async def run_async(self, task: ToolTask) -> CallReply:
        """The same in an event loop: on it where the runner can, else in a thread."""
        runner = self._runner_of(task.tool)
        if runner is None:
            return _not_run(task)
        try:
            if isinstance(runner, AsyncRunner):
                result = await runner.call_async(task.tool.id, task.arguments)
            else:
                result = await asyncio.to_thread(runner.call, task.tool.id, task.arguments)
        except Exception as fault:
            return _failed(task, fault)
        return _ran(task, result)

    def _runner_of(self, tool: Tool) -> ToolRunner | None:
        if tool.id in (owners := self._owners):
            return owners[tool.id]
        return next((one for one in self._runners if one.has_tool(tool.id)), None)

    def _rules_of(self, engine: SearchEngine) -> TurnHandler:
        """The engine and what follows from its catalog: one value, so that all of it changes at once."""
        plan = self.disclosure.plan(engine.catalog)
        return TurnHandler(engine, plan, ToolNames(engine.catalog), count=self.disclosure.count)


class ToolcribSession:
    """One conversation with a model. Its `state` is all there is to save."""

    def __init__(
        self,
        crib: Toolcrib,
        style: Style,
        budget: int | None,
        allowed: AllowedTools | None,
        search: dict[str, SearchMode],
    ) -> None:
        self._crib = crib
        self._style: Style = style
        self._allowed = allowed
        self._search = search
        self._conversation = self._rules()
        self._answered: tuple[CallReply, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        self.state = self._conversation.start_session(budget)
        # By the ids that the caller sees of their calls; the calls themselves are as they came.
        self._waiting: dict[str, ToolTask] = {}

    @property
    def pending(self) -> tuple[ToolTask, ...]:
        """The calls that are the caller's to run, each with an id that no other of them has.

        Not every model gives its calls ids, or different ones. Then they are ours, and never sent.
        """
        return tuple(
            replace(task, call=replace(task.call, id=id)) for id, task in self._waiting.items()
        )

    # What goes to a provider's client is given as `Any`: each SDK has types of its own for the same
    # dictionaries, and type checkers would refuse ours in all of them.

    def tools(self, wire: str) -> list[Any]:
        """The tools to send with the next request, in a provider's format."""
        format = get_wire_format(wire)
        conversation = self._now()
        search = self._search_on(format)
        if search == "hosted" and format.hosted_search_to_wire:
            return format.hosted_search_to_wire(*self._split(conversation))
        if search == "client" and format.client_search_to_wire:
            return format.client_search_to_wire(conversation.own_tools, *self._split(conversation))
        return format.tools_to_wire(conversation.tools(self.state))

    def handle(self, wire: str, reply: object) -> list[Any]:
        """What to add to the messages after a reply: the reply itself, and the results of its calls.

        Searches are answered and our own tools are run. Calls to other tools are yours: they stand
        in `pending`, and the results come with `answer`, all of this turn together.
        """
        format = get_wire_format(wire)
        ours = self._taken(format, reply)
        return self._handled(format, reply, map(self._crib.run, ours))

    async def handle_async(self, wire: str, reply: object) -> list[Any]:
        """The same in an event loop: async functions run on it, the calls of a turn side by side."""
        format = get_wire_format(wire)
        # A search is work of its own, which would hold the loop up.
        ours = await asyncio.to_thread(self._taken, format, reply)
        answers = await asyncio.gather(*map(self._crib.run_async, ours))
        return self._handled(format, reply, answers)

    def answer(self, wire: str, results: Mapping[str, object] | None = None) -> list[Any]:
        """The results of the last turn: ours, and yours of the calls in `pending`, by call id.

        A result is text, a `CallResult`, or anything that can be told as JSON.
        """
        format = get_wire_format(wire)
        given = self._checked({} if results is None else results)
        if not self._waiting:
            # `handle` has given the results already.
            return []
        for id, task in self._waiting.items():
            result = given.get(id)
            if result is None:
                self._answered += (_not_run(task),)
                continue
            self._answered += (task.build_answer(result.text, result.is_error),)
        self._waiting = {}
        return self._results(format)

    def replay(self, wire: str, messages: Iterable[object]) -> None:
        """Become the session that a message history tells of: for those who keep nothing else."""
        conversation = self._now()
        turns = get_wire_format(wire).turns_from_wire(messages)
        self.state = conversation.replay_history(turns, self.state.budget_tokens)

    def save(self) -> dict[str, Any]:
        """The session as JSON."""
        return self.state.to_dict()

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from a saved session: without the tools that have changed or are refused since,
        and with those that a new session would show.
        """
        self.state = self._now().resume_session(Session.from_dict(stored))

    def _checked(self, results: Mapping[str, object]) -> dict[str, CallResult]:
        """The results by call id, before anything is done with them."""
        if not isinstance(results, Mapping):
            raise InvalidMessage("results come by call id; write {task.call.id: result}")
        for id in results:
            if id not in self._waiting:
                known = ", ".join(self._waiting) or "none"
                raise InvalidMessage(f"no call {id!r} is pending; the pending ones are {known}")
        return {id: _result(id, value) for id, value in results.items()}

    def _taken(self, format: WireFormat, reply: object) -> list[ToolTask]:
        """Take note of what a reply means. Gives the calls that are ours to run."""
        conversation = self._now()
        calls = format.calls_from_wire(reply)
        loaded = format.loaded_names_from_wire(reply) if format.loaded_names_from_wire else ()
        turn = conversation.handle_calls(self.state, calls, loaded)
        self.state = turn.session
        ours = [task for task in turn.tasks if self._crib.can_run(task.tool)]
        self._calls = tuple(calls)
        self._answered = turn.answers
        self._waiting = _by_id(task for task in turn.tasks if task not in ours)
        return ours

    def _handled(
        self, format: WireFormat, reply: object, answers: Iterable[CallReply]
    ) -> list[Any]:
        """What to add to the messages, now that our own tools have answered."""
        self._answered += tuple(answers)
        messages = format.reply_to_messages(reply)
        done = self._calls and not self._waiting
        return [*messages, *self._results(format)] if done else messages

    def _now(self) -> TurnHandler:
        """The rules over the catalog as it is now; what is newly pinned is shown from here on."""
        self._crib.sync_registries()
        if self._conversation.engine is not self._crib.engine:
            self._conversation = self._rules()
            self.state = self._conversation.resume_session(self.state)
        return self._conversation

    def _rules(self) -> TurnHandler:
        return self._crib.build_turn_handler(self._style, self._allowed)

    def _split(self, conversation: TurnHandler) -> tuple[list[Tool], list[Tool]]:
        """What is shown from the start and what is held back, of what the caller may use."""
        plan = conversation.plan
        return (
            [tool for tool in plan.visible_tools if conversation.is_allowed(tool)],
            [tool for tool in plan.deferred_tools if conversation.is_allowed(tool)],
        )

    def _search_on(self, wire: WireFormat) -> SearchMode:
        return self._search.get(wire.name, "ours") if self._conversation.plan.is_active else "ours"

    def _results(self, wire: WireFormat) -> list[dict[str, Any]]:
        """All results of a turn, in the order of its calls."""
        places = {id(call): place for place, call in enumerate(self._calls)}
        ordered = sorted(self._answered, key=lambda answer: places[id(answer.call)])
        if self._search_on(wire) == "client" and wire.client_answers_to_wire:
            return wire.client_answers_to_wire(ordered)
        return wire.answers_to_wire(ordered)


def _by_id(tasks: Iterable[ToolTask]) -> dict[str, ToolTask]:
    """Tasks by the ids of their calls; those without one, or with another's, get one of ours."""
    known: dict[str, ToolTask] = {}
    for number, task in enumerate(tasks, 1):
        id = task.call.id
        while not id or id in known:
            id = f"{id or task.tool.name} {number}"
        known[id] = task
    return known


def _result(id: str, value: object) -> CallResult:
    """A result as a program has it, told as a registry tells that of a function."""
    try:
        if isinstance(value, CallResult):
            return CallResult(render_value(value.text), value.is_error)
        return CallResult(render_value(value))
    except (ValueError, RecursionError) as fault:
        raise InvalidMessage(
            f"the result of call {id!r} is no JSON: {fault}; pass it as text"
        ) from fault


def _ran(task: ToolTask, result: object) -> CallReply:
    if not isinstance(result, CallResult):
        raise InvalidConfig(
            f"the runner of {task.tool.id!r} gave back a {type(result).__name__}; "
            "let its `call` return CallResult(text)"
        )
    return task.build_answer(result.text, result.is_error)


def _not_run(task: ToolTask) -> CallReply:
    return task.build_answer(prompts.TOOL_NOT_RUN.format(name=task.tool.name), is_error=True)


def _failed(task: ToolTask, fault: Exception) -> CallReply:
    reason = f"{type(fault).__name__}: {fault}"
    text = prompts.TOOL_FAILED.format(name=task.tool.name, reason=reason)
    return task.build_answer(text, is_error=True)


def validate_budget(budget: int | None) -> int | None:
    """A number of tokens that revealed tools may take; None is no limit."""
    if budget is not None and (not isinstance(budget, int) or budget is True or budget < 1):
        raise InvalidConfig(f"budget is a number of tokens, from 1, not {budget!r}")
    return budget


def _search_by(native: object, model: str) -> dict[str, SearchMode]:
    """Who searches, on each wire that knows more than one way; unknown means ours."""
    if native == "auto":
        provider = find_hosting_provider(model or "")
        return {_PROVIDERS[provider]: "hosted"} if provider else {}
    if native is True or native == "client":
        return dict.fromkeys(_PROVIDERS.values(), "hosted" if native is True else "client")
    if native is False:
        return {}
    raise InvalidConfig(f'native is True, False, "client" or "auto", not {native!r}')
