"""Compare the cost of a conversation of 60 turns with a prompt cache, by the method of sending tools.

python -m benchmarks.caching [--data DIR] [--sizes 60,300] [--out FILE]

A scripted model answers 60 messages through the LLM gateway: 24 different questions from the queries of the catalog, 24
repeated questions, and 12 messages that need no tool. It calls a tool if it has received the definition. Otherwise it
searches with the words of the question, and then by name if the result has only the name of the tool.

The simulated prompt cache is ideal: the longest prefix of a request that any earlier request of the conversation had is
cached, in units of tools and messages. As at the providers, tools come before messages.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import httpx2

from benchmarks.caching_wires import Body, Chat, Gemini, Messages, Responses, View, Wire
from benchmarks.context import ContextQuery as Need
from benchmarks.context import data_folder, find_token_counter, sample_catalog
from benchmarks.machine import describe_machine
from tests.gateway.llm.serving import running_llm_gateway
from toolcrib import Tool
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.core.tool_names import public_name
from toolcrib.core.validation import find_problems
from toolcrib.errors import InvalidSchema
from toolcrib.gateway.llm.gateway import LlmGateway

SIZES = "60,300,1000,5744"
TURNS = 60
DIFFERENT = 24
RATIOS = (0.1, 0.25)
ANSWER = "Here is what I found out, in a sentence or two, for the person who asked."
NO_TOOL = "There is no tool for that."
TIMEOUT_SECONDS = 1_800
# Messages that need no tool.
FOLLOW_UPS = (
    "Thanks, that helps.",
    "Can you explain that in more detail?",
    "Please summarise what we have so far.",
    "Why did that fail?",
    "Write it as a short paragraph for my boss.",
    "Translate your answer into French.",
    "What do you think is the best option here?",
    "Compare the two and tell me which is cheaper.",
    "Fix the typo in the second sentence.",
    "Refactor the function so that it has no side effects.",
    "Which of these did we already do?",
    "Stop, that's wrong. Start again.",
)


@dataclass(frozen=True)
class Question:
    """The text of a question, and the arguments for each suitable tool by name."""

    text: str
    calls: Mapping[str, Body]


WIRES = (Messages(), Chat(), Responses(), Gemini())
APIS: Mapping[str, LlmApi] = {"Messages": "messages", "Gemini": "gemini"}
TOOLS_PLACEHOLDER = "@tools"
METHODS: Mapping[str, Body] = {
    "reveal": {"style": "reveal"},
    "dispatch without prefetching": {"style": "dispatch", "prefetch": False},
    "dispatch": {"style": "dispatch"},
}


@dataclass
class Figures:
    """The tokens sent in a conversation. A stable request starts with the whole request before it."""

    total: int = 0
    cached: int = 0
    requests: int = 0
    stable: int = 0
    solved: int = 0

    @property
    def uncached(self) -> int:
        return self.total - self.cached

    def cost(self, ratio: float) -> float:
        """Return the cost in uncached tokens."""
        return self.uncached + ratio * self.cached


class PromptCache:
    """Counts the tokens of the requests of one conversation, and how many of them are cached."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._sizes: dict[str, int] = {}
        self._prefixes: set[int] = set()
        self._before: list[str] = []
        self.figures = Figures()

    def add(self, pieces: list[str]) -> None:
        """Count one request."""
        prefix, is_cached = 0, True
        for piece in pieces:
            if piece not in self._sizes:
                self._sizes[piece] = self._count(piece)
            prefix = hash((prefix, piece))
            is_cached = is_cached and prefix in self._prefixes
            self._prefixes.add(prefix)
            self.figures.total += self._sizes[piece]
            self.figures.cached += self._sizes[piece] if is_cached else 0
        self.figures.requests += 1
        self.figures.stable += pieces[: len(self._before)] == self._before
        self._before = pieces


@dataclass
class Model:
    """The scripted model."""

    questions: Mapping[str, Question]
    wire: Wire
    cache: PromptCache
    searched: set[str] = field(default_factory=set)
    replies: int = 0

    def answer(self, body: Body) -> Body:
        """Return the reply to a request, and count its tokens."""
        self.cache.add(list(self.wire.pieces(body)))
        self.replies += 1
        text, call = self._decide(self.wire.view(body))
        return self.wire.reply(text, call, f"{self.replies:024d}")

    def _decide(self, view: View) -> tuple[str, tuple[str, Body] | None]:
        question = self.questions[view.question]
        is_search = bool(view.results) and view.results[-1].startswith('{"found"')
        if view.results and not is_search:
            self.cache.figures.solved += 1
            return ANSWER, None
        if not question.calls:
            return ANSWER, None
        defined = {tool["name"] for found in view.searches for tool in found["found"] if "input_schema" in tool}
        defined |= {tool["name"] for tool in view.prefetched}
        for name, arguments in question.calls.items():
            if name in view.listed:
                return "", (name, arguments)
            if name in defined and "call_tool" in view.listed:
                return "", ("call_tool", {"tool_name": name, "tool_input": arguments})
        if not is_search:
            self.searched = set()
            return "", ("search_tools", {"query": question.text})
        named = {tool["name"] for tool in view.searches[-1].get("nearest", ())}
        for name in question.calls:
            if name in named and name not in self.searched:
                self.searched.add(name)
                return "", ("search_tools", {"query": name})
        return NO_TOOL, None


@contextmanager
def serving(model: list[Model]) -> Iterator[str]:
    """Serve the last model of a list, and yield the URL."""

    class ModelHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(model[-1].answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), ModelHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Sends a history and returns the response, and the style of the gateway.
Send = Callable[[Sequence[Body]], tuple[Body, str]]


def converse(wire: Wire, texts: Sequence[str], send: Send) -> str:
    """Ask all questions, and return the style of the gateway."""
    history: list[Body] = []
    style = ""
    for text in texts:
        history.append(wire.question(text))
        while True:
            response, style = send(history)
            id = wire.accept(history, response)
            if not id:
                break
            history.append(wire.result(id))
    return style


def build_sender(wire: Wire, entries: Sequence[Body], client: httpx2.Client, url: str) -> Send:
    """Return a function that sends a history with these tools to a gateway."""
    # Serialized once: thousands of tools are most of a request.
    tools = json.dumps(entries, ensure_ascii=False)

    def send(history: Sequence[Body]) -> tuple[Body, str]:
        body = json.dumps(wire.body(history, [TOOLS_PLACEHOLDER]), ensure_ascii=False)
        rest = body.replace(json.dumps([TOOLS_PLACEHOLDER]), tools)
        headers = {"content-type": "application/json"}
        answer = client.post(f"{url}{wire.path}", content=rest.encode(), headers=headers)
        answer.raise_for_status()
        return answer.json(), answer.headers.get("x-toolcrib-style", "")

    return send


def make_arguments(schema: Mapping[str, Any]) -> Body:
    """Return arguments for the required parameters of a tool."""
    properties = schema.get("properties") or {}
    return {name: _make_value(properties.get(name) or {}) for name in schema.get("required") or ()}


def _make_value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("anyOf"):
        return _make_value(schema["anyOf"][0])
    if "const" in schema or "default" in schema:
        return schema.get("const", schema.get("default"))
    type = schema.get("type")
    values: dict[Any, Any] = {"integer": schema.get("minimum", 1), "number": schema.get("minimum", 1), "boolean": True}
    if type == "array":
        return [_make_value(schema.get("items") or {})]
    return make_arguments(schema) if type == "object" else values.get(type, "some text")


def build_questions(folder: Path, tools: Mapping[str, Tool]) -> list[tuple[Question, frozenset[str]]]:
    """Return the questions of the catalog for which the model can make valid arguments."""
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    questions = []
    for query in map(json.loads, lines):
        calls = {}
        for id in query["relevant"]:
            arguments = make_arguments(tools[id].input_schema)
            try:
                is_valid = not find_problems(tools[id].input_schema, arguments)
            except InvalidSchema:
                is_valid = False
            if is_valid:
                calls[public_name(tools[id])] = arguments
        if len(calls) == len(query["relevant"]) > 0 and query["kind"] != "multi":
            questions.append((Question(query["query"], calls), frozenset(query["relevant"])))
    return questions


def choose_texts(questions: Sequence[Question]) -> list[str]:
    """Return the texts of all turns: half of the different questions first, then new and old ones mixed.

    The messages that need no tool are among the later ones.
    """
    rng = random.Random("caching")
    texts = [question.text for question in questions]
    repeats = rng.choices(texts[: DIFFERENT // 2], k=TURNS - DIFFERENT - len(FOLLOW_UPS))
    later = [*texts[DIFFERENT // 2 :], *repeats, *FOLLOW_UPS]
    rng.shuffle(later)
    return [*texts[: DIFFERENT // 2], *later]


def measure(wire: Wire, tools: Sequence[Tool], questions: Sequence[Question], count: Callable[[str], int]) -> list[str]:
    """Return the rows of one API and size."""
    texts = choose_texts(questions)
    known = {question.text: question for question in (*questions, *(Question(text, {}) for text in FOLLOW_UPS))}
    models: list[Model] = []
    figures: dict[str, Figures] = {}
    rows = []
    api = APIS.get(wire.name, "openai")

    def start_model() -> Figures:
        models.append(Model(known, wire, PromptCache(count)))
        return models[-1].cache.figures

    entries = [wire.tool(tool) for tool in tools]
    figures["all"] = start_model()
    converse(wire, texts, lambda history: (models[-1].answer(wire.body(history, entries)), ""))
    with ExitStack() as opened:
        url = opened.enter_context(serving(models))
        client = opened.enter_context(httpx2.Client(timeout=TIMEOUT_SECONDS))

        def start_gateway(**settings: Any) -> Send:
            upstream = LlmUpstreamConfig("model", api=api, url=url, **settings)
            gateway = LlmGateway(LlmGatewayConfig((upstream,)))
            return build_sender(wire, entries, client, opened.enter_context(running_llm_gateway(gateway)).url)

        for name, settings in METHODS.items():
            figures[name] = start_model()
            converse(wire, texts, start_gateway(**settings))
        names = {name: name for name in figures} | {"all": "everything up front"}
        choices = []
        for ratio in RATIOS:
            # The choice depends on the tools, so one turn shows it.
            start_model()
            choices.append(converse(wire, texts[:1], start_gateway(cached_price=ratio)))
    for style, one in figures.items():
        rows.append(_row(wire.name, names[style], one, [one.cost(ratio) for ratio in RATIOS], figures["all"]))
    auto = [figures[style] for style in choices]
    costs = [one.cost(ratio) for one, ratio in zip(auto, RATIOS, strict=True)]
    rows.append(_row(wire.name, f"auto: {' or '.join(dict.fromkeys(choices))}", auto[0], costs, figures["all"]))
    return rows


def _row(api: str, name: str, one: Figures, costs: Sequence[float], up_front: Figures) -> str:
    shares = [
        f"{cost:,.0f} | {100 * cost / up_front.cost(ratio):.1f} %" for cost, ratio in zip(costs, RATIOS, strict=True)
    ]
    stable = 100 * one.stable / one.requests
    return (
        f"| {api} | {name} | {one.requests} | {one.total:,} | {one.cached:,} | {one.uncached:,} | {' | '.join(shares)} "
        f"| {stable:.0f} % | {one.solved} of {TURNS - len(FOLLOW_UPS)} |"
    )


def render_tables(data: Path, sizes: Sequence[int], wires: Sequence[Wire]) -> Iterator[str]:
    """Yield the results as lines of Markdown."""
    folder = data / "mcp_catalog"
    title, count = find_token_counter()
    catalog_tools = {tool.id: tool for tool in sample_catalog(folder, 5_744, ())}
    chosen = random.Random("caching").sample(build_questions(folder, catalog_tools), DIFFERENT)
    needs = [Need(question.text, ids) for question, ids in chosen]
    questions = [question for question, _ in chosen]
    yield "# Cost of a conversation with a prompt cache"
    yield ""
    yield (
        f"`python -m benchmarks.caching`. {TURNS} turns, {DIFFERENT} different questions, {len(FOLLOW_UPS)} turns without a tool. Tokens of tools and messages: "
        f"{title}. Costs are in uncached tokens, with cached tokens at 0.1 and at 0.25 of their price. *Stable* are "
        "the requests that start with the whole request before them. *Solved* are the turns in which the right tool "
        "was called."
    )
    for size in sizes:
        tools = sample_catalog(folder, size, needs)
        tokens = sum(count(json.dumps(Messages().tool(tool), ensure_ascii=False)) for tool in tools)
        yield ""
        yield f"## {len(tools):,} tools, {tokens / len(tools):.0f} tokens each"
        yield ""
        yield "| API | | requests | tokens | cached | uncached | cost at 0.1 | | cost at 0.25 | | stable | solved |"
        yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        for wire in wires:
            yield from measure(wire, tools, questions, count)
    yield ""
    yield f"{', '.join(describe_machine().values())}."


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder with mcp_catalog.")
@click.option("--sizes", default=SIZES, help="Numbers of tools.")
@click.option("--apis", default=",".join(wire.name for wire in WIRES), help="Names of APIs.")
@click.option("--out", type=click.Path(path_type=Path), default="benchmarks/results/caching.md")
def main(data: Path | None, sizes: str, apis: str, out: Path) -> None:
    """Run the benchmark and write the tables."""
    lines = []
    wires = [wire for wire in WIRES if wire.name in apis.split(",")]
    for line in render_tables(data_folder(data), [int(size) for size in sizes.split(",")], wires):
        click.echo(line)
        lines.append(line)
        # Written after each line, so that an interrupted run keeps what it measured.
        out.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
