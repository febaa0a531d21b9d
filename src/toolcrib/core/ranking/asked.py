"""What a query asks for, without what is said around it.

"Hi! I'm looking for a tool that can shrink a photo, thanks" asks to shrink a photo. The rest would be
read as well, and tools that look for tools, or say thank you, come nearer than the right one.
"""

from __future__ import annotations

import re
from typing import Final

# Without one of these in it, or at its beginning, nothing is said around a text: told very soon.
_HINTS: Final = ("tool", "thank", "...", " way ", "thing ", "user ", " is to ", "help", "suggest")
_FIRSTS: Final = """
    hi hello hey good dear greetings user user's query request question task goal objective intent
    instruction instructions prompt my customer client
"""
_FIRST: Final = frozenset(_FIRSTS.split())
_QUOTES: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "«": "»", "‘": "’"}

_AT_FIRST: Final = frozenset((*_QUOTES, " ", "\t", "\n"))


def _spaced(pattern: str) -> str:
    return pattern.replace(" ", r"\s+")


# What leads to the tool that is looked for: "could you find me", "I am looking for", "is there".
_POLITELY: Final = (
    r"(?:(?:please|kindly|now|also|just|ok|okay|so|and|(?:can|could|would|will) you),? )*"
)
_NEEDING: Final = (
    r"(?:(?:i|we)(?:['’](?:d|ll|m|re))? )?(?:(?:also|just|really|would|am|are|will|do) )*"
    r"(?:need|want|require|like|love|look(?:ing)? for|search(?:ing)? for|in need of)"
    r"(?: to (?:find|use|get|have|know(?: of)?))?"
    r"|(?:is|are) there|do (?:you|we) (?:have|know(?: of)?)|what(?: is|['’]s)"
)
_SEEKING: Final = (
    r"(?:find|search|look up|locate|discover|identify|get|give|show|list|suggest|recommend|pick"
    r"|choose|select|load|use|tell|figure out|what|which)(?: (?:me|us|for))?"
)
_ANY: Final = (
    r"(?:(?:an?|any|some|the|one|all|another|which|what|every|good|right|best|most|suitable"
    r"|appropriate|available|specific|proper|relevant|useful|existing|mcp|correct|possible) )*"
)
# What leads on to what it should do: "that can", "to", "I could use for".
_DOING: Final = (
    r"(?:(?: (?:for|to do|that can do) (?:this|that|it|the following(?: \w+)?))?\s*:\s*| (?:(?:that|which) )?(?:(?:is|are|exists?|available) )*"
    r"(?:(?:(?:i|we|you|one) )?(?:can|could|should|would|might|may)(?: (?:i|we|you))?(?: (?:use|call))?"
    r"(?: (?:(?:to )?help(?: me| us)?|be used|let (?:me|us)))?(?: (?:to|for|with))?"
    r"|(?:able|used|made|meant|there) (?:to|for)|capable of"
    r"|(?:lets?|helps?|allows?|enables?)(?: (?:me|us|you|one|people|users))?(?: (?:to|with))?"
    r"|to help(?: me| us)?(?: to| with)?|for|to|that|which) )"
)
# Whoever greets, asks for help, or says that a request follows, has asked for nothing yet.
_PREAMBLE: Final = (
    r"(?:the|my|our) (?:goal|aim|task|job|objective|idea|plan) (?:here )?is to "
    r"|(?:the )?(?:user|customer|client) (?:wants|needs|would like|is asking)(?: (?:me|us|you))? to "
    r"|(?:the )?(?:(?:user|customer|client)(?:['’]s)? )?"
    r"(?:request|query|question|task|goal|need|intent|objective|instructions?|prompt)\s*: "
    r"|(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day)|dear)\b[\w ]{0,20}[!,.:] "
    r"|(?:(?:i )?(?:need|want) (?:your |some )?help|(?:help|assist) me)(?: out)?"
    r"(?: with (?:something|this|it|the following|a task|a few things|one thing))?\s*[?.!:] "
)
_LOOKING: Final = (
    rf"(?:(?:(?:{_NEEDING}|{_SEEKING}) )*?{_ANY}tools?{_DOING}"
    rf"|(?:{_NEEDING}) {_ANY}(?:way|(?:something|anything)(?= that | which )){_DOING})"
)
_LOOKS = re.compile(_spaced(rf"\W*{_POLITELY}{_LOOKING}"), re.IGNORECASE)
_FRAME = re.compile(_spaced(rf"\W*{_POLITELY}(?:{_LOOKING}|{_PREAMBLE})"), re.IGNORECASE)
# What ends it: thanks, and whether that can be had. Both stand behind a sign, or thanks have words of
# their own: "say thanks" says what is to be said.
_THANK: Final = r"(?:(?:many )?thanks|thank you)"
_MUCH: Final = (
    r"(?: (?:a (?:lot|bunch|million)|so much|very much|in advance|for (?:your|the) help))"
)
_HELP: Final = (
    r"(?:can|could|would) you (?:please )?(?:help|assist|suggest (?:something|anything|one))"
    r"(?: (?:me|us))?(?: out)?(?: with (?:that|this|it))?"
)
_ENDING = re.compile(_spaced(rf"\b(?:{_THANK}({_MUCH}*)|{_HELP})[\s.!?)…:-]*$"), re.IGNORECASE)
_SIGNS: Final = " \t\n,;.!?…-"
_WORD = re.compile(r"\w{2}")
# None is longer.
_FRAME_CHARS: Final = 200
_ENDING_CHARS: Final = 60


def asked(query: str) -> str:
    """What a query asks for; all of it, where nothing is said around it."""
    text = _unquoted(query) if query[:1] in _AT_FIRST else query
    lowered = text.lower()
    if not any(map(lowered.__contains__, _HINTS)):
        first = lowered.partition(" ")[0]
        if first.rstrip("!,.:") not in _FIRST:
            return text
    left = _before_ending(text[_behind_frames(text) :].strip())
    return left if _WORD.search(left) else text


def behind_looking(text: str) -> int:
    """Where in a text begins what a tool is looked for to do; 0 if none is looked for."""
    # Most texts mention none, which is told much sooner.
    if "ool" not in text and "way" not in text and "thing" not in text:
        return 0
    found = _LOOKS.match(text, 0, _FRAME_CHARS)
    return found.end() if found else 0


def _behind_frames(text: str) -> int:
    """Where in a text begins what is asked for: behind as many frames as there are before a word."""
    begin = 0
    while found := _FRAME.match(text, begin, begin + _FRAME_CHARS):
        if not _WORD.search(text, found.end()):
            break
        begin = found.end()
    return begin


def _before_ending(text: str) -> str:
    found = _ENDING.search(text, max(len(text) - _ENDING_CHARS, 0))
    before = text[: found.start()].rstrip(" ") if found else text
    if found and (found.group(1) or before[-1:] in _SIGNS):
        return before.rstrip(_SIGNS)
    return text.rstrip(" .") if text.endswith("...") else text


def _unquoted(query: str) -> str:
    """A query that stands in quotes as a whole, without them: models quote what they do not mean so."""
    text = query.strip()
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or text[-1] != closing:
        return query
    inner = text[1:-1]
    return query if closing in inner or text[0] in inner or not inner.strip() else inner
