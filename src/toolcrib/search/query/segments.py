"""One query that asks for several things, cut into the things it asks for. No language model.

People join needs with full stops, commas, `and`, `then`. The same signs join the things of *one*
need ("from Lisbon and Porto"), so a piece counts as a need of its own only if it begins the way a
request does: with a verb in the imperative, or with a question. Many verbs are nouns as well ("the
start and stop time"), so where a joint is weak, what stands around the verb is looked at too. The
items of a list, and short notes with a semicolon or a line each, are needs however they begin;
unless a request stands before them, which they belong to.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from toolcrib.search.query.preamble import find_request_start, strip_preamble
from toolcrib.search.query.verbs import GERUNDS, VERBS

MAX_SEGMENTS: Final = 8
# A piece of fewer words belongs to the one before it.
_MIN_WORDS: Final = 2

# Stands before an item of a list, which is a need whatever it begins with.
_ITEM_MARK: Final = "\v"
# Ends a need whatever follows.
_STRONG: Final = (
    r"\v|[.!?](?=\s)|[;\n。！？；]+|\b(?:and |, ?)?then\b|\b(?:after that|afterwards)\b"
)
# Ends a need if what follows begins one.
_AND: Final = "and plus und dann y luego et puis e poi"
_WEAK: Final = (
    # No part of a word: Italian "e" joins no "e-mail".
    rf",|，|、|(?<![\w-])(?:{_AND.replace(' ', '|')})(?![\w-])|&"
    r"|(?<=\s)(?:[-=]>|[→⇒/])(?=\s)|(?<!\S)•"
)
# Signs and words without one of which nothing is cut.
_SEPARATOR_SIGN = re.compile(
    r"(?=[.!?;\n。！？；,，、&)→⇒•=/-])(?:[.!?]\s|[;\n。！？；,，、&)→⇒•]|[-=]>|(?<=\s)/\s)"
)
_JOINING_WORDS: Final = frozenset(f"then after afterwards step {_AND}".split())
_LETTERS = re.compile(r"\w+")
# How either begins, which is told sooner than whether it is one.
_SEPARATOR_START: Final = r"[\v.!?;\n。！？；,，、&→⇒/•=-]|\b[adelptuy]"
_SEPARATOR = re.compile(rf"(?={_SEPARATOR_START})(?:({_STRONG})|({_WEAK}))", re.IGNORECASE)
# Before the items of a list: "1.", "(2)", "c)", "Step 4:", and at the beginning of a line "-" or "*".
_ITEM = re.compile(
    r"(?<!\S)(?:\(?(\d\d?|[a-z])(?:\)|\.(?=\s))|step (\d\d?)\b[:.)]?)\s*", re.IGNORECASE
)
_BULLET = re.compile(r"^[ \t]*[-–*•·+][ \t]+", re.MULTILINE)
# "In our GitLab repo, …" and "zendesk: …" are said of all that follows.
_SCOPE = re.compile(
    r"\s*((?:in|on|with|using|via|for|inside|from)\b[^,:;.]{1,50},|[^,:;.]{1,30}:(?=\s))", re.I
)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# A word with a capital that no sentence begins with. What stands before it is looked at where there
# is a capital, and not everywhere.
_NAME = re.compile(r"[A-Z](?<!^.)(?<![.!?:]\s.)(?<![^\s'\"(].)[\w.-]*\w")
_CAPITAL = re.compile(r"[A-Z]")
# Names of services are seldom shorter.
_LONG_WORD = re.compile(r"(?<![\w.-])[a-z][\w.-]{2,}\w")
_MAX_NAME_CHARS: Final = 300
# A word, and what follows it, with the sign that may begin with.
_WORDS = re.compile(r"([^\W_]+(?:['’][^\W_]+)?)(?=(?:\s+([^\s.,;:!?]+))?)")
# How far from a joint is looked, how many words may lead to a verb or make an item of an enumeration.
_CONTEXT_CHARS: Final = 80
_MAX_LEAD_WORDS: Final = 5
_MAX_ITEM_WORDS: Final = 2
# A question of no more words says too little by itself: "how much".
_MAX_SHORT_WORDS: Final = 2
# With a semicolon or a line each, as many words are a need without a verb: "stock price; air quality".
_MIN_NOTE_WORDS: Final = 2
_MAX_NOTE_WORDS: Final = 4
_NOTE = re.compile(r"(?:[;；](?=\s)|\n)+")
_MAX_HEADING_WORDS: Final = 6
_NO_NOTES = re.compile(r"[\d\"'`(\[{:=<>]")
_NO_NOTE: Final = "i we you they it my our your have had a an the this that of"
# "We should get …" is a request as well; "and should get …" is none.
_OBLIGATION = re.compile(r"\W*(?:i|we)\s+(?:should|must)\s", re.I)
# What may stand before the verb of a request.
_LEADS: Final = """
    also and afterwards please finally lastly next so now just can could would you i i'd want need
    to like we let's help me secondly first second third if it's that maybe possibly perhaps kindly
    ideally optionally
"""
_QUESTIONS: Final = "what which who whose where when how why is are does do did has"
# With one of these behind it, a verb has an object of its own.
_OPENERS: Final = """
    a an the this that these those my your our his her its their me you him us them it all any both
    each every everything some no new one two three four five ten up out off in on to into from for
    with at about what which who where when how if whether
"""
# With one of these behind it, a word is no verb: "and design can start".
_AUXILIARIES: Final = "can could is are was were has have will should must"
# Verbs that only say how, or which.
_MODIFIER_VERB = re.compile(
    r"(?:such as|(?:arrange|filter|group|order|page|rank|sort|split) by)\b", re.I
)
# In a question: about something that was said before.
_PRONOUN = re.compile(
    r"\b(?:it|its|it's|he|him|his|she|her|they|them|their|there|those|these)\b", re.I
)
_LEAD: Final = frozenset(_LEADS.split())
_QUESTION: Final = frozenset(_QUESTIONS.split())
_OPENER: Final = frozenset(_OPENERS.split())
_BEHIND_A_SUBJECT: Final = frozenset(_AUXILIARIES.split())
_IN_NO_NOTE: Final = frozenset(_NO_NOTE.split()) | _QUESTION | _BEHIND_A_SUBJECT
_BEFORE_A_NOUN: Final = _OPENER | VERBS | _LEAD | {""}


def split_segments(query: str) -> tuple[str, ...]:
    """The needs of a query, in its order, each with the scope said of all; one if it is just one."""
    # Most queries hold nothing that could cut them, which is told much sooner than where to cut.
    if not _SEPARATOR_SIGN.search(query) and _JOINING_WORDS.isdisjoint(
        _LETTERS.findall(query.lower())
    ):
        return (query,)
    text = _mark_list_items(query)
    scope = _SCOPE.match(text)
    shared = scope.group(1).strip(" ,:") if scope else ""
    body = text[scope.end() :] if scope else text
    first = _WORD.search(body, find_request_start(body))
    # Where the first request begins with a gerund that is no noun, the others do.
    is_doing = first is not None and first.group().lower() in GERUNDS and _has_object(body, first)
    has_head = _match_request(shared) is not None
    pieces = _split_requests(body, GERUNDS, has_head) if is_doing else []
    if len(pieces) < 2:
        pieces = _split_requests(body, VERBS, has_head) or _split_notes(body)
    if len(pieces) < 2:
        return (query,)
    pieces = list(map(strip_preamble, pieces[:MAX_SEGMENTS]))
    return tuple(f"{shared}: {piece}" if shared else piece for piece in pieces)


def find_names(query: str) -> tuple[str, ...]:
    """The names that a query mentions, as far as capitals tell: of services, places, people."""
    # Where everything is in capitals, capitals tell nothing.
    if not _CAPITAL.search(query, 1) or query.isupper():
        return ()
    return tuple(dict.fromkeys(_NAME.findall(query)))


def find_long_words(query: str) -> tuple[str, ...]:
    """The words of a query in small letters that may be names, as far as their length tells.

    Not those that a minus rules out, and none further on than is read.
    """
    return tuple(dict.fromkeys(_LONG_WORD.findall(query, 0, _MAX_NAME_CHARS)))


def _mark_list_items(query: str) -> str:
    """A query with a sign of ours before each item of a list, and without what numbers it."""
    items: list[re.Match[str]] = []
    is_lettered = False
    for found in _ITEM.finditer(query):
        number = (found.group(1) or found.group(2)).lower()
        is_lettered = is_lettered if items else number == "a"
        awaited = chr(ord("a") + len(items)) if is_lettered else str(len(items) + 1)
        # Only what is counted from the first on is a list, if it begins as one or is of requests:
        # "room 12) and seat b)" is none.
        is_item = (
            items
            or _is_list_heading(query[: found.start()])
            or _match_request(query[found.end() :])
        )
        if number == awaited and is_item:
            items.append(found)
    if len(items) > 1:
        begins_at = [0, *(item.end() for item in items)]
        ends = [*(item.start() for item in items), None]
        query = _ITEM_MARK.join(
            query[begin:end] for begin, end in zip(begins_at, ends, strict=True)
        )
    text, count = _BULLET.subn(_ITEM_MARK, query)
    return text if count != 1 else _BULLET.sub("", query)


def _is_list_heading(text: str) -> bool:
    """Whether a list may follow a text: there is none, it ends its line, or it is a short heading."""
    text = text.rstrip(" \t")
    is_heading = (
        text.endswith(":") and len(text[: _CONTEXT_CHARS + 1].split()) <= _MAX_HEADING_WORDS
    )
    return not text or text.endswith("\n") or is_heading


def _split_requests(text: str, verbs: frozenset[str], has_head: bool) -> list[str]:
    """The requests of a text, each with what was said before it that asks for nothing by itself.

    `has_head` says that a request stands before the text.
    """
    pieces: list[str] = []
    told = ""
    begin = passed = 0
    was_question = is_item = False
    for cut in (*_SEPARATOR.finditer(text), None):
        if cut is not None and cut.group(2) is not None:
            before = _WORD.findall(
                text[max(begin, cut.start() - _CONTEXT_CHARS) : cut.start()].lower()
            )
            between = _WORD.findall(text[passed : cut.start()]) if passed > begin else ()
            after = text[cut.end() : cut.end() + _CONTEXT_CHARS]
            if not _separates_requests(before, after, 1 <= len(between) <= _MAX_ITEM_WORDS, verbs):
                passed = cut.end()
                continue
        piece = text[begin : cut.start() if cut else None].strip(" ,;.!?")
        begin = cut.end() if cut else begin
        was_item, is_item = is_item, cut is not None and cut.group() == _ITEM_MARK
        if not piece:
            is_item = is_item or was_item
            continue
        request = _match_request(piece, verbs)
        told = f"{told} {piece}".strip()
        count = len(_WORD.findall(piece, find_request_start(piece)))
        # What a request lists belongs to it: "make a shopping list with - milk - eggs".
        is_listed = was_item and not has_head
        has_head = has_head or (request is not None and not was_item)
        if not is_listed and (request is None or count < _MIN_WORDS):
            continue
        is_question = request is not None and _is_question_word(request.group(1).lower())
        # "When did it start, how long did it take": the second asks more about the same.
        if was_question and is_question and (count <= _MAX_SHORT_WORDS or _PRONOUN.search(piece)):
            pieces[-1] = f"{pieces[-1]} {told}"
        else:
            pieces.append(told)
        told, was_question = "", is_question
    if told and pieces:
        pieces[-1] = f"{pieces[-1]} {told}"
    return pieces


def _split_notes(text: str) -> list[str]:
    """The needs of a text that just notes each in a few words, with a semicolon or a line each."""
    if _NO_NOTES.search(text):
        return []
    notes = [note for note in map(str.strip, _NOTE.split(text)) if note]
    for note in notes:
        words = _WORD.findall(note.lower())
        is_short = _MIN_NOTE_WORDS <= len(words) <= _MAX_NOTE_WORDS
        if not is_short or not _IN_NO_NOTE.isdisjoint(words):
            return []
    return notes


def _match_request(text: str, verbs: frozenset[str] = VERBS) -> re.Match[str] | None:
    """The word by which a text begins a request, and the word behind it; None if it begins none."""
    begin = find_request_start(text)
    if begin:
        # Whatever a tool is looked for to do is a request.
        return _WORDS.search(text, begin)
    ought = _OBLIGATION.match(text)
    begin = ought.end() if ought else 0
    for found in islice(_WORDS.finditer(text, begin, _CONTEXT_CHARS), _MAX_LEAD_WORDS + 1):
        word = found.group(1).lower().replace("’", "'")
        if word in verbs or (verbs is VERBS and _is_question_word(word)):
            return None if _MODIFIER_VERB.match(text, found.start()) else found
        if word not in _LEAD:
            return None
    return None


def _starts_object(word: str) -> bool:
    """Whether a word begins what a verb before it is about, and is not named by it."""
    return word in _OPENER or not (word.isalpha() and word.islower())


def _has_object(text: str, gerund: re.Match[str]) -> bool:
    """Whether a gerund has an object: "getting the weather" has one, "shipping costs" are a noun."""
    follows = _WORDS.match(text, gerund.start())
    return follows is not None and bool(follows.group(2)) and _starts_object(follows.group(2))


def _is_question_word(word: str) -> bool:
    return word.partition("'")[0] in _QUESTION


def _separates_requests(
    before: list[str], after: str, is_listed: bool, verbs: frozenset[str]
) -> bool:
    """Whether a weak joint parts two needs: a request begins behind it, and not just a noun."""
    request = _match_request(after, verbs)
    if request is None:
        return False
    is_led = _WORD.search(after, 0, request.start()) is not None
    verb, follows = request.group(1).lower(), request.group(2) or ""
    if verb in verbs and follows in _BEHIND_A_SUBJECT:
        return False
    has_object = _starts_object(follows)
    if verbs is GERUNDS:
        return is_led or has_object
    if is_led or _is_question_word(verb) or has_object or not before:
        return True
    # "a first, last and display name", "win rates and pick rates", "the start and stop time"
    *_, earlier, last = "", *before
    if is_listed or (last == follows and earlier not in VERBS):
        return False
    return last not in VERBS or earlier not in _BEFORE_A_NOUN
