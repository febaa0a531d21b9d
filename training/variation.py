"""Vary the wording of tools and queries, so that the encoder does not memorise it."""

from __future__ import annotations

import json
import random
import re
from typing import Final

from toolcrib.core.tool import Tool
from toolcrib.search.dense.tool_text import build_tool_text

# The share of tools with their full text, and the chances of each change of the others.
FULL: Final = 0.4
NO_SERVER, NO_PARAMETERS, NO_NAME, FEWER_SENTENCES = 0.35, 0.4, 0.1, 0.5
MIN_WORDS: Final = 8
# The share of queries with a typing error, with idle text, or inside JSON or a code fence.
TYPO, IDLE, WRAPPED = 0.08, 0.06, 0.02

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_BEFORE: Final = (
    "Hi there,",
    "hey, quick one:",
    "Could you please",
    "Good morning! I hope you are well.",
    "I have been at this all day.",
    "My boss is asking again, so",
    "ok so",
    "Please help me:",
    "I need to get this done before lunch.",
    "For our team:",
    "I'm new here and not sure whom to ask.",
    "Sorry to bother you again.",
    "Yesterday was chaos and I forgot about it.",
    "We talked about this in the meeting on Monday.",
    "My laptop is about to run out of battery.",
    "Would you be so kind and",
    "Small favour:",
    "Context: I took this over from a colleague last week.",
    "I know you are busy.",
    "Let's see if this works.",
)
_AFTER: Final = (
    "Thanks a lot!",
    "Let me know when it is done.",
    "No rush, whenever you have a minute.",
    "I really appreciate it.",
    "It is for the meeting tomorrow.",
    "thx",
    "Sorry for asking twice.",
    "The weather is terrible today, by the way.",
    "Keep it short, please.",
    "I will be back after lunch.",
    "My manager will be happy.",
    "We had the same thing last year and nobody remembered how it was done.",
    "I am writing this on my phone, so excuse the typos.",
    "You have been very helpful so far.",
    "After that I can finally go home.",
    "If it doesn't work, just say so.",
    "It's not urgent, but it has been on my mind all week.",
    "Cheers from the whole team!",
    "I'd do it myself, but I have no idea where to start.",
    "That would save me a lot of time.",
)


def vary_tool_text(tool: Tool, chance: random.Random) -> str:
    """Return the text of a tool, mostly without some of its parts."""
    if chance.random() < FULL:
        return build_tool_text(tool)
    server = "" if chance.random() < NO_SERVER else tool.server
    schema = None if chance.random() < NO_PARAMETERS else tool.input_schema
    sentences = [part for part in _SENTENCE.split(tool.description) if part.strip()]
    if len(sentences) > 1 and chance.random() < FEWER_SENTENCES:
        sentences = chance.sample(sentences, chance.randint(1, min(3, len(sentences))))
    description = " ".join(" ".join(sentences).split()[: chance.randint(MIN_WORDS, 40)])
    text = build_tool_text(Tool(tool.name, description, schema, title=tool.title, server=server))
    if len(description.split()) >= MIN_WORDS and chance.random() < NO_NAME:
        return description
    return text


def vary_query(query: str, chance: random.Random, rate: float = 1.0) -> str:
    """Return a query, sometimes with a typing error, idle text or markup. `rate` multiplies the chances."""
    if len(query) > 12 and chance.random() < rate * TYPO:
        query = _mistype(query, chance)
    drawn = chance.random() / rate
    if drawn < IDLE:
        return _add_idle_text(query, chance)
    if drawn < IDLE + WRAPPED:
        return chance.choice((json.dumps({"query": query}), f"```\n{query}\n```", json.dumps({"task": query})))
    return query


def _add_idle_text(query: str, chance: random.Random) -> str:
    """Add one or two sentences before or after a query."""
    count = chance.randint(1, 2)
    if chance.random() < 0.5:
        return " ".join([*chance.sample(_BEFORE, count), query])
    return " ".join([query, *chance.sample(_AFTER, count)])


def _mistype(query: str, chance: random.Random) -> str:
    """Swap, drop, double or replace one letter inside a word."""
    places = [match.start() for match in re.finditer(r"(?<=[a-z])[a-z](?=[a-z])", query)]
    if not places:
        return query
    at = chance.choice(places)
    typed = chance.choice(
        (
            query[at + 1] + query[at],
            query[at + 1],
            query[at] * 2 + query[at + 1],
            chance.choice("aeionrst") + query[at + 1],
        )
    )
    return query[:at] + typed + query[at + 2 :]
