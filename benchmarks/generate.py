"""Generate tools that resemble real ones. The same seed gives the same tools."""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

from benchmarks.vocabulary import (
    ACTIONS,
    CATEGORIES,
    NOUNS,
    PARAMETERS,
    QUALITIES,
    SENTENCES,
    SERVICES,
    THINGS,
    split_words,
)

Word = TypeVar("Word")

POOL = 1 << 16
RARE_WORDS = 40_000
RARE_SHARE = 0.04
TOOLS_PER_SERVER = (4, 60)
WORDS = (10, 40)
OPENERS = (
    "how do I",
    "I need to",
    "find a tool that can",
    "please",
    "is there a way to",
    "can you",
    "what should I use to",
    "the user wants to",
)
CLOSERS = ("", "for my team", "before tomorrow", "and tell me the result", "from last month", "")


class Row(TypedDict):
    """One tool as plain data, the input of every engine."""

    id: str
    name: str
    description: str
    input_schema: dict[str, Any]
    server: str
    category: str
    tags: list[str]


class Query(NamedTuple):
    """A query and the id of its tool."""

    text: str
    source: str


class _Words:
    """Draws words with a Zipf-Mandelbrot distribution: the weight of the k-th word is 1 / (k + 5)."""

    def __init__(self, rng: random.Random) -> None:
        self._chance = rng
        rare = _rare_words(rng, RARE_WORDS)
        self._nouns = _zipf_pool(rng, NOUNS, POOL)
        tail = int(POOL * RARE_SHARE)
        self._nouns[:tail] = _zipf_pool(rng, rare, tail)
        self._qualities = _zipf_pool(rng, QUALITIES, POOL)
        self._things = _zipf_pool(rng, THINGS, POOL)
        self._actions = _zipf_pool(rng, ACTIONS, POOL)

    def noun(self) -> str:
        return self._nouns[int(self._chance.random() * POOL)]

    def quality(self) -> str:
        return self._qualities[int(self._chance.random() * POOL)]

    def thing(self) -> str:
        return self._things[int(self._chance.random() * POOL)]

    def action(self) -> tuple[str, str, str]:
        return self._actions[int(self._chance.random() * POOL)]


def rows(count: int, seed: int = 0) -> Iterator[Row]:
    """Yield `count` tools, server by server."""
    return itertools.islice(_generate_rows(seed), count)


def queries(sample: Sequence[Row], count: int, seed: int = 0) -> list[Query]:
    """Return queries for the tools in `sample`, natural language and keywords alternately."""
    rng = random.Random(f"queries {seed}")
    ask = itertools.cycle((_natural, _keywords))
    return [make(rng, rng.choice(sample)) for make in itertools.islice(ask, count)]


def _generate_rows(seed: int) -> Iterator[Row]:
    rng = random.Random(f"tools {seed}")
    words = _Words(rng)
    for number in itertools.count():
        lap, turn = divmod(number, len(SERVICES))
        service = SERVICES[turn]
        server = service if not lap else f"{service}-{words.noun()}-{lap}"
        style = rng.choice(("snake", "snake", "snake", "camel", "kebab"))
        category = rng.choice(CATEGORIES)
        names: set[str] = set()
        for _ in range(rng.randint(*TOOLS_PER_SERVER)):
            row = _row(rng, words, service, style)
            if row["name"] not in names:
                names.add(row["name"])
                row["server"], row["category"] = server, category
                row["id"] = f"{server}___{row['name']}"
                yield row


def _row(rng: random.Random, words: _Words, service: str, style: str) -> Row:
    verb, _, _ = words.action()
    thing = words.thing()
    parts = [verb, *thing.split("_")]
    if rng.random() < 0.5:
        parts.append(service)
    if rng.random() < 0.2:
        parts.append(words.noun())
    thing = thing.replace("_", " ")
    return Row(
        id="",
        name=_join_name(parts, style),
        description=_description(rng, words, verb, thing, service),
        input_schema=_input_schema(rng, words, thing),
        server="",
        category="",
        tags=sorted({service, words.noun()} if rng.random() < 0.7 else {service}),
    )


def _join_name(parts: Sequence[str], style: str) -> str:
    if style == "camel":
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return ("_" if style == "snake" else "-").join(parts)


def _description(rng: random.Random, words: _Words, verb: str, thing: str, service: str) -> str:
    wanted = rng.randint(*WORDS)
    text = f"{verb.capitalize()} {words.quality()} {thing} {words.noun()} in {service.capitalize()}"
    if wanted < WORDS[0] + 8:
        return f"{text} by {words.noun()}, {words.noun()} or {words.quality()} {words.noun()}."
    sentences = [f"{text}."]
    length = len(text.split())
    while length < wanted:
        sentence = _fill_template(rng, words, rng.choice(SENTENCES), thing)
        length += len(sentence.split())
        if length <= WORDS[1]:
            sentences.append(sentence)
    return " ".join(sentences)


def _fill_template(rng: random.Random, words: _Words, template: str, thing: str) -> str:
    _, third, done = rng.choice(ACTIONS)
    return template.format(
        thing=thing,
        noun=words.noun(),
        noun2=words.noun(),
        noun3=words.noun(),
        quality=words.quality(),
        third=third,
        done=done,
    )


def _input_schema(rng: random.Random, words: _Words, thing: str) -> dict[str, Any]:
    count = min(int(rng.expovariate(0.22)), 8)
    chosen = rng.sample(PARAMETERS, count)
    properties = {
        name: {"type": kind, "description": _fill_template(rng, words, text, thing)} for name, kind, text in chosen
    }
    required = [name for name, _, _ in chosen[: (count + 1) // 2]]
    return {"type": "object", "properties": properties, "required": required}


def _natural(rng: random.Random, row: Row) -> Query:
    words = _words(row["description"])[: rng.randint(5, 14)]
    opener, closer = rng.choice(OPENERS), rng.choice(CLOSERS)
    return Query(" ".join((opener, *words, closer)).strip(), row["id"])


def _keywords(rng: random.Random, row: Row) -> Query:
    name = row["name"].replace("_", " ").replace("-", " ").split()
    words = [*name, *(word for word in _words(row["description"])[:12] if len(word) > 4)]
    chosen = rng.sample(words, min(rng.randint(1, 4), len(words)))
    return Query(" ".join(chosen), row["id"])


def _words(text: str) -> list[str]:
    """Return the words of a text without operators and punctuation."""
    return re.findall(r"\w+(?:['-]\w+)*", text.lower())


def _rare_words(rng: random.Random, count: int) -> list[str]:
    """Return made-up names of products, the long tail of every real catalog."""
    heads = split_words("b d f g k l m n p r s t v z br dr kr st tr")
    tails = split_words("a e i o u ai en or")
    return ["".join(rng.choice(heads) + rng.choice(tails) for _ in range(rng.randint(2, 4))) for _ in range(count)]


def _zipf_pool(rng: random.Random, words: Sequence[Word], size: int) -> list[Word]:
    return rng.choices(words, weights=[1 / (rank + 6) for rank in range(len(words))], k=size)
