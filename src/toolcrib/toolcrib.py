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

from toolcrib.adapters.wire import Search, Wire, wire_named
from toolcrib.core import prompts
from toolcrib.core.calls import Answer, Call, CallResult, Runner
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import Names
from toolcrib.errors import InvalidConfig, InvalidMessage, InvalidTool
from toolcrib.registry.registry import Registry, text_of
from toolcrib.search.engine import Allowed, SearchEngine
from toolcrib.session.disclosure import Disclosure
from toolcrib.session.hosted_search import hosting_provider
from toolcrib.session.session import Session
from toolcrib.session.turn import Conversation, Style, Task
from toolcrib.tool_sources import tools_of, toolsets

Native = bool | Literal["client", "auto"]

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
        runner: Runner | None = None,
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
        given = list(toolsets(listed))
        self._registries = {one: one.catalog for one in given if isinstance(one, Registry)}
        self._runners: list[Runner] = [
            functions,
            *(one for one in given if not isinstance(one, Registry)),
            *([runner] if runner is not None else []),
        ]
        self._changing = RLock()
        self._rules = self._rules_of(engine(Catalog(tools_of(listed, functions))))
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
            self._rules = self._rules_of(self.engine.updated(catalog))

    def follow(self) -> None:
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
        allowed: Allowed | None = None,
        native: Native = False,
        model: str = "",
    ) -> CribSession:
        """A new conversation.

        `style` is "reveal" (found tools join the list) or "dispatch" (the list never changes).
        `budget` is how many tokens the revealed tools may take. `allowed` are the ids of the tools
        this caller may use, or a question to ask of each. `native` hands the search over to the
        provider (True), answers in the provider's own shape ("client"), or does what the model can
        ("auto", which needs the `model`).
        """
        if style not in get_args(Style):
            raise InvalidConfig(f"no style {style!r}; the styles are {', '.join(get_args(Style))}")
        budget = checked_budget(budget)
        self.follow()
        if allowed is not None and not callable(allowed) and not isinstance(allowed, Collection):
            raise InvalidConfig(
                f"allowed is a set of ids, or a question to ask of each tool, not {allowed!r}"
            )
        return CribSession(self, style, budget, allowed, _search_by(native, model))

    def conversation(self, style: Style, allowed: Allowed | None) -> Conversation:
        """The rules of a conversation over the catalog as it is now."""
        return replace(self._rules, style=style, allowed=allowed)

    def runs(self, tool: Tool) -> bool:
        """Whether a call to this tool is ours to run."""
        return self._runner_of(tool) is not None

    def run(self, task: Task) -> Answer:
        """Run one call. Whatever goes wrong in the tool is told to the model, not raised."""
        runner = self._runner_of(task.tool)
        if runner is None:
            return _not_run(task)
        try:
            result = runner.call(task.tool.id, task.arguments)
        except Exception as fault:
            return _failed(task, fault)
        return _ran(task, result)

    async def run_async(self, task: Task) -> Answer:
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

    def _runner_of(self, tool: Tool) -> Runner | None:
        if tool.id in (owners := self._owners):
            return owners[tool.id]
        return next((one for one in self._runners if one.holds(tool.id)), None)

    def _rules_of(self, engine: SearchEngine) -> Conversation:
        """The engine and what follows from its catalog: one value, so that all of it changes at once."""
        plan = self.disclosure.plan(engine.catalog)
        return Conversation(engine, plan, Names(engine.catalog), count=self.disclosure.count)


class CribSession:
    """One conversation with a model. Its `state` is all there is to save."""

    def __init__(
        self,
        crib: Toolcrib,
        style: Style,
        budget: int | None,
        allowed: Allowed | None,
        search: dict[str, Search],
    ) -> None:
        self._crib = crib
        self._style: Style = style
        self._allowed = allowed
        self._search = search
        self._conversation = self._rules()
        self._answered: tuple[Answer, ...] = ()
        self._calls: tuple[Call, ...] = ()
        self.state = self._conversation.begin(budget)
        # By the ids that the caller sees of their calls; the calls themselves are as they came.
        self._waiting: dict[str, Task] = {}

    @property
    def pending(self) -> tuple[Task, ...]:
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
        format = wire_named(wire)
        conversation = self._now()
        search = self._search_on(format)
        if search == "hosted" and format.hosted:
            return format.hosted(*self._split(conversation))
        if search == "client" and format.client:
            return format.client(conversation.own_tools, *self._split(conversation))
        return format.tools(conversation.tools(self.state))

    def handle(self, wire: str, reply: object) -> list[Any]:
        """What to add to the messages after a reply: the reply itself, and the results of its calls.

        Searches are answered and our own tools are run. Calls to other tools are yours: they stand
        in `pending`, and the results come with `answer`, all of this turn together.
        """
        format = wire_named(wire)
        ours = self._taken(format, reply)
        return self._handled(format, reply, map(self._crib.run, ours))

    async def handle_async(self, wire: str, reply: object) -> list[Any]:
        """The same in an event loop: async functions run on it, the calls of a turn side by side."""
        format = wire_named(wire)
        # A search is work of its own, which would hold the loop up.
        ours = await asyncio.to_thread(self._taken, format, reply)
        answers = await asyncio.gather(*map(self._crib.run_async, ours))
        return self._handled(format, reply, answers)

    def answer(self, wire: str, results: Mapping[str, object] | None = None) -> list[Any]:
        """The results of the last turn: ours, and yours of the calls in `pending`, by call id.

        A result is text, a `CallResult`, or anything that can be told as JSON.
        """
        format = wire_named(wire)
        given = self._checked({} if results is None else results)
        if not self._waiting:
            # `handle` has given the results already.
            return []
        for id, task in self._waiting.items():
            result = given.get(id)
            if result is None:
                self._answered += (_not_run(task),)
                continue
            self._answered += (task.answered(result.text, result.is_error),)
        self._waiting = {}
        return self._results(format)

    def replay(self, wire: str, messages: Iterable[object]) -> None:
        """Become the session that a message history tells of: for those who keep nothing else."""
        conversation = self._now()
        turns = wire_named(wire).turns(messages)
        self.state = conversation.replayed(turns, self.state.budget_tokens)

    def save(self) -> dict[str, Any]:
        """The session as JSON."""
        return self.state.to_dict()

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from a saved session: without the tools that have changed or are refused since,
        and with those that a new session would show.
        """
        self.state = self._now().resumed(Session.from_dict(stored))

    def _checked(self, results: Mapping[str, object]) -> dict[str, CallResult]:
        """The results by call id, before anything is done with them."""
        if not isinstance(results, Mapping):
            raise InvalidMessage("results come by call id; write {task.call.id: result}")
        for id in results:
            if id not in self._waiting:
                known = ", ".join(self._waiting) or "none"
                raise InvalidMessage(f"no call {id!r} is pending; the pending ones are {known}")
        return {id: _result(id, value) for id, value in results.items()}

    def _taken(self, format: Wire, reply: object) -> list[Task]:
        """Take note of what a reply means. Gives the calls that are ours to run."""
        conversation = self._now()
        calls = format.calls(reply)
        loaded = format.loaded(reply) if format.loaded else ()
        turn = conversation.turn(self.state, calls, loaded)
        self.state = turn.session
        ours = [task for task in turn.tasks if self._crib.runs(task.tool)]
        self._calls = tuple(calls)
        self._answered = turn.answers
        self._waiting = _by_id(task for task in turn.tasks if task not in ours)
        return ours

    def _handled(self, format: Wire, reply: object, answers: Iterable[Answer]) -> list[Any]:
        """What to add to the messages, now that our own tools have answered."""
        self._answered += tuple(answers)
        messages = format.reply(reply)
        done = self._calls and not self._waiting
        return [*messages, *self._results(format)] if done else messages

    def _now(self) -> Conversation:
        """The rules over the catalog as it is now; what is newly pinned is shown from here on."""
        self._crib.follow()
        if self._conversation.engine is not self._crib.engine:
            self._conversation = self._rules()
            self.state = self._conversation.resumed(self.state)
        return self._conversation

    def _rules(self) -> Conversation:
        return self._crib.conversation(self._style, self._allowed)

    def _split(self, conversation: Conversation) -> tuple[list[Tool], list[Tool]]:
        """What is shown from the start and what is held back, of what the caller may use."""
        plan = conversation.plan
        return (
            [tool for tool in plan.shown if conversation.may_use(tool)],
            [tool for tool in plan.held if conversation.may_use(tool)],
        )

    def _search_on(self, wire: Wire) -> Search:
        return self._search.get(wire.name, "ours") if self._conversation.plan.is_active else "ours"

    def _results(self, wire: Wire) -> list[dict[str, Any]]:
        """All results of a turn, in the order of its calls."""
        places = {id(call): place for place, call in enumerate(self._calls)}
        ordered = sorted(self._answered, key=lambda answer: places[id(answer.call)])
        if self._search_on(wire) == "client" and wire.client_answers:
            return wire.client_answers(ordered)
        return wire.answers(ordered)


def _by_id(tasks: Iterable[Task]) -> dict[str, Task]:
    """Tasks by the ids of their calls; those without one, or with another's, get one of ours."""
    known: dict[str, Task] = {}
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
            return CallResult(text_of(value.text), value.is_error)
        return CallResult(text_of(value))
    except (ValueError, RecursionError) as fault:
        raise InvalidMessage(
            f"the result of call {id!r} is no JSON: {fault}; pass it as text"
        ) from fault


def _ran(task: Task, result: object) -> Answer:
    if not isinstance(result, CallResult):
        raise InvalidConfig(
            f"the runner of {task.tool.id!r} gave back a {type(result).__name__}; "
            "let its `call` return CallResult(text)"
        )
    return task.answered(result.text, result.is_error)


def _not_run(task: Task) -> Answer:
    return task.answered(prompts.NOT_ANSWERED.format(name=task.tool.name), is_error=True)


def _failed(task: Task, fault: Exception) -> Answer:
    reason = f"{type(fault).__name__}: {fault}"
    text = prompts.FAILED.format(name=task.tool.name, reason=reason)
    return task.answered(text, is_error=True)


def checked_budget(budget: int | None) -> int | None:
    """A number of tokens that revealed tools may take; None is no limit."""
    if budget is not None and (not isinstance(budget, int) or budget is True or budget < 1):
        raise InvalidConfig(f"budget is a number of tokens, from 1, not {budget!r}")
    return budget


def _search_by(native: object, model: str) -> dict[str, Search]:
    """Who searches, on each wire that knows more than one way; unknown means ours."""
    if native == "auto":
        provider = hosting_provider(model or "")
        return {_PROVIDERS[provider]: "hosted"} if provider else {}
    if native is True or native == "client":
        return dict.fromkeys(_PROVIDERS.values(), "hosted" if native is True else "client")
    if native is False:
        return {}
    raise InvalidConfig(f'native is True, False, "client" or "auto", not {native!r}')
