"""Split a query with several requests into segments, by rules.

People join requests with full stops, commas, `and`, `then`. The same separators occur inside *one*
request ("from Lisbon and Porto"), so a piece is a segment only if it starts like a request: with a
verb in the imperative, or with a question word. Many verbs are nouns as well ("the start and stop
time"), so at a weak separator the words around the verb are checked too. List items, and short notes
separated by semicolons or lines, are segments whatever they start with, unless a request precedes
them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from toolcrib.search.query.preamble import GERUNDS, VERBS, find_request_start, strip_preamble

MAX_SEGMENTS: Final = 8
# A shorter piece belongs to the piece before it.
_MIN_WORDS: Final = 2

# Marks the start of a list item, which is a segment whatever it starts with.
_ITEM_MARK: Final = "\v"
# Strong separators end a segment.
_STRONG: Final = r"\v|[.!?](?=\s)|[;\n。！？；]+|\b(?:and |, ?)?then\b|\b(?:after that|afterwards)\b"
# Weak separators end a segment if a request follows.
_AND: Final = "and plus und dann y luego et puis e poi"
_WEAK: Final = (
    # Not inside a word: the Italian "e" does not match in "e-mail".
    rf",|，|、|(?<![\w-])(?:{_AND.replace(' ', '|')})(?![\w-])|&"
    r"|(?<=\s)(?:[-=]>|[→⇒/+])(?=\s)|(?<!\S)•"
)
# A fast check: a query without any of these is not split.
_SEPARATOR_SIGN = re.compile(
    r"(?=[.!?;\n。！？；,，、&)→⇒•=/+-])(?:[.!?]\s|[;\n。！？；,，、&)→⇒•]|[-=]>|(?<=\s)[/+]\s)"
)
_JOINING_WORDS: Final = frozenset(f"then after afterwards step {_AND}".split())
_LETTERS = re.compile(r"\w+")
# The first character of a separator; checking it first is faster.
_SEPARATOR_START: Final = r"[\v.!?;\n。！？；,，、&→⇒/•=+-]|\b[adelptuy]"
_SEPARATOR = re.compile(rf"(?={_SEPARATOR_START})(?:({_STRONG})|({_WEAK}))", re.IGNORECASE)
# Before list items: "1.", "(2)", "c)", "Step 4:", and "-" or "*" at the start of a line.
_ITEM = re.compile(r"(?<!\S)(?:\(?(\d\d?|[a-z])(?:\)|\.(?=\s))|step (\d\d?)\b[:.)]?)\s*", re.IGNORECASE)
_BULLET = re.compile(r"^[ \t]*[-–*•·+][ \t]+", re.MULTILINE)
# A scope applies to all segments: "In our GitLab repo, …", "zendesk: …".
_SCOPE = re.compile(
    r"\s*((?:in|on|with|within|using|via|through|for|inside|from)\b[^,:;.]{1,50},|[^,:;.]{1,30}(?::|\s[-–—])(?=\s))",
    re.I,
)
_DASHES: Final = ("-", "–", "—")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# A capitalized word that does not start a sentence. The lookbehinds follow the capital, because that is
# faster.
_NAME = re.compile(r"[A-Z](?<!^.)(?<![.!?:]\s.)(?<![^\s'\"(].)[\w.-]*\w")
_CAPITAL = re.compile(r"[A-Z]")
# Service names are rarely shorter.
_LONG_WORD = re.compile(r"(?<![\w.-])[a-z][\w.-]{2,}\w")
# After one of these, a piece may contain its request.
_INNER_START = re.compile(r"(?:\s[-–—]|(?<=[a-z]):)\s+(?=[\w'’ ]+)")
_MAX_NAME_CHARS: Final = 300
# A word and the next one, including a sign that it starts with.
_WORDS = re.compile(r"([^\W_]+(?:['’][^\W_]+)?)(?=(?:\s+([^\s.,;:!?]+))?)")
# Limits of the context of a separator, of the words before a verb, and of an item of an enumeration.
_CONTEXT_CHARS: Final = 80
_MAX_LEAD_WORDS: Final = 5
_MAX_ITEM_WORDS: Final = 2
# A question of two words or fewer is not a separate segment: "how much".
_MAX_SHORT_WORDS: Final = 2
# Notes between semicolons or lines are segments without a verb: "stock price; air quality".
_MIN_NOTE_WORDS: Final = 2
_MAX_NOTE_WORDS: Final = 4
_NOTE = re.compile(r"(?:[;；](?=\s)|\n)+")
_MAX_HEADING_WORDS: Final = 6
_MIN_STORY_WORDS: Final = 25
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_NON_NOTE_SIGN = re.compile(r"[\d\"'`(\[{:=<>]")
_NON_NOTE_WORDS: Final = "i we you they it my our your have had a an the this that of"
# "We should get …" is a request; "and should get …" is not.
_OBLIGATION = re.compile(r"\W*(?:i|we)\s+(?:should|must)\s", re.I)
# Words that may precede the verb of a request.
_CONNECTIVES: Final = "also and afterwards please finally lastly next now just secondly first second third kindly"
_LEADS: Final = f"""
    {_CONNECTIVES} so can could would you i i'd want need to like we let's help me if it's that maybe possibly
    perhaps ideally optionally u pls plz lemme gotta wanna gonna
"""
_QUESTIONS: Final = "what which who whose where when how why is are does do did has"
_MODALS: Final = ("can", "could", "would")
# A sentence with one of these is or contains a request, whatever it starts with.
_WISH = re.compile(
    r"\b(?:please|need|want|wish|would like|[id]['’]d (?:like|love)|looking for|wonder|hop(?:e|ing) to|goal|task|must|should|ha(?:ve|s) to"
    r"|trying to|help|(?:can|could|would) you|let me know|how (?:do|can)|(?:tell|show|give|get|find) (?:me|us))\b",
    re.I,
)
# A question that asks for a tool and not for what it should do: "What's the best way to do this?"
_ANY_TOOL: Final = r"(?:tool|api|server|service|app|option|one)s?"
_TOOL_QUESTION = re.compile(
    rf"(?:(?:what|which)(?: {_ANY_TOOL})? (?:should|can|could|would|do) (?:i|we|you) (?:use|do|try|suggest|recommend|choose)"
    r"|(?:what(?:['’]s| is) the|is there an?) (?:best|easiest|easy|good|better) (?:way|tool|approach|option)(?: to \w+ (?:this|that|it))?"
    rf"|which {_ANY_TOOL} (?:is|are|does|do|fits?|handles?|works?)(?: (?:this|that|it))?(?: (?:best|good|suitable|right))?"
    r"|how (?:can|should|do|could|would) (?:i|we) (?:do|achieve|handle|approach|solve|set|go about) (?:this|that|it))"
    r"(?: (?:up|together|for this|for that|here|for (?:this|the|my) \w+))?\W*",
    re.I,
)
# A sentence that starts with one of these, and contains no request, is a statement.
_STATEMENT_STARTS: Final = """
    i i'm i've i'd i'll we we're we've we'd we'll my our your his her their its it it's he he's she she's they they're
    you you're this that that's these those the there there's nobody somebody everybody everyone someone people
    some most many both all nothing everything something anyway luckily sadly unfortunately today yesterday
    tonight tomorrow last since because although though when whenever while if after before but and so as well
    by at in on during
"""
# Words that start the object of a verb.
_OPENERS: Final = """
    a an the this that these those my your our his her its their me you him us them it all any both
    each every everything some no new one two three four five ten up out off in on to into from for
    with at about what which who where when how if whether
"""
# Any other word before an article or a pronoun, is a verb: "glue the pages".
_NON_VERBS: Final = """
    a about above across after again against all along also although always am amid among and another any anything around
    as at because before behind below beneath beside besides between beyond both but by came concerning down
    during each either else enough ensure especially even ever every everything except far few for from given had half have he
    hence here hers how i if in inside instead into is it just last later least less like limit many me mine more most
    much my near neither next nor not nothing now of off often on once one only onto opposite or other our out
    outside over past per perhaps plus quite rather regarding same she since so some something sometimes specify still
    such than that the their them then there these they this those though through throughout till to today
    tomorrow tonight too toward towards twice under unless unlike until up upon us versus via was we were what
    whatever when whenever where wherever whether which whichever while who whoever whom whose why will with
    within without worth would yesterday yet you your
"""
_VERB_OBJECTS: Final = "a an the this my our your his her its their it them him"
# Adverbs, participles and other forms: "preferably the first", "including a table", "returns an answer".
_NON_VERB_ENDINGS: Final = ("ly", "ing", "ed", "s")
# A word before one of these is not a verb: "and design can start".
_AUXILIARIES: Final = "can could is are was were has have will should must"
# Verbs that only modify the request before.
_MODIFIER_VERB = re.compile(r"(?:such as|(?:arrange|filter|group|order|page|rank|sort|split) by)\b", re.I)
# A verb with its object: "create a ticket", "switch off the light".
_VERB_PHRASE = re.compile(
    r"\w+\s+(?:(?:up|off|on|out|down|over|back|in)\s+)?(?:an?|the|this|these|my|our|your|all|every|some|me)\b"
)
# "have it ring the doctor", "have a look at the log"
_HAVE = re.compile(
    r"have\s+(?:(?:it|him|her|them)\s+(?!been\b|\w+(?:ed|ing)\b)[a-z]+\s+\w|an?\s+(?:quick\s+|closer\s+)?look\b)", re.I
)
# Pronouns by which a question refers to the one before.
# A pronoun among these first words of a sentence refers to the sentence before it.
_FIRST_WORDS: Final = 5
_PRONOUN = re.compile(r"\b(?:it|its|it's|he|him|his|she|her|they|them|their|there|those|these)\b", re.I)
# These questions are about something else, although they may contain a pronoun.
_NEW_QUESTION = re.compile(r"which\s+\w|(?:is|are) there\b", re.I)
# A request for several things: "get the price, the dividends of last year and the cash flow". The words
# before the first thing are repeated for the others.
_RETRIEVAL = re.compile(
    r"\W*(?:please\s+)?(?:collect|fetch|get|give|grab|list|look up|pull|read|retrieve|show|tell)(?:\s+(?:me|us))?\s+",
    re.I,
)
_NEXT_THING = re.compile(
    r"\s*(?:,\s*(?:and\s+)?|\band\s+|\bplus\s+)(?=(?:the|an?|any|all|my|our)\s)(?!the\s+ones?\b)", re.I
)
# After one of these, the next thing may belong to the first one: "the trains between our office and the airport".
_JOINS_THINGS: Final = frozenset(
    ["between", "both", "compared", "for", "given", "including", "taking", "using", "with"]
)
# A shorter thing is a property: "the name, the email and the age of a user".
_MIN_THING_WORDS: Final = 3
_CONNECTIVE: Final = frozenset(_CONNECTIVES.split())
_STATEMENT_START: Final = frozenset(_STATEMENT_STARTS.split())
_LEAD: Final = frozenset(_LEADS.split())
_QUESTION: Final = frozenset(_QUESTIONS.split())
_OPENER: Final = frozenset(_OPENERS.split())
_NON_VERB: Final = frozenset(_NON_VERBS.split())
_VERB_OBJECT: Final = frozenset(_VERB_OBJECTS.split())
_DETERMINER: Final = frozenset(["a", "an", "the", "this", "these", "my", "our", "your", "all", "every", "some", "me"])
_AFTER_SUBJECT: Final = frozenset(_AUXILIARIES.split())
_NOT_IN_NOTE: Final = frozenset(_NON_NOTE_WORDS.split()) | _QUESTION | _AFTER_SUBJECT
_NOT_A_SERVICE: Final = _NON_VERB | _STATEMENT_START | _OPENER | _LEAD | _QUESTION | VERBS
_BEFORE_A_NOUN: Final = _OPENER | VERBS | _LEAD | {""}


def split_segments(query: str) -> tuple[str, ...]:
    """Return the segments of a query in order, each with the common scope; or the query itself."""
    # A fast check, because most queries contain no separator.
    if not _SEPARATOR_SIGN.search(query) and _JOINING_WORDS.isdisjoint(_LETTERS.findall(query.lower())):
        return (query,)
    text = _mark_list_items(query)
    scope = _SCOPE.match(text)
    scope_end = _find_scope_end(text, scope.end()) if scope else 0
    shared = text[:scope_end].strip(" ,:–—-\n")
    has_head = _match_request(shared) is not None
    if has_head and scope and scope.group().endswith(_DASHES):
        # "find trains Rome - Milan" is not a scope.
        scope_end, shared = 0, ""
    body = text[scope_end:]
    first = _WORD.search(body, find_request_start(body))
    # If the first request starts with a gerund that has an object, the others do too.
    uses_gerunds = first is not None and first.group().lower() in GERUNDS and _has_object(body, first)
    pieces = _split_requests(body, GERUNDS, has_head) if uses_gerunds else []
    if len(pieces) < 2:
        pieces = _split_requests(body, VERBS, has_head) or _split_notes(body)
    if len(pieces) < 2:
        pieces = _split_things(body)
    if len(pieces) < 2:
        return (query,)
    pieces = list(map(strip_preamble, pieces[:MAX_SEGMENTS]))
    return tuple(f"{shared}: {piece}" if shared else piece for piece in pieces)


def drop_statements(query: str) -> str:
    """Return the sentences of a text that are requests; the text itself if all are, or none is.

    "The coffee is cold. Book a flight to Rome. My boss is in a mood." asks for a flight.
    """
    sentences = _split_sentences(query)
    if len(sentences) < 2:
        return query
    is_request = [not _is_statement(sentence) for sentence in sentences]
    if not any(is_request):
        return query
    # A statement before "what is blocking them?" describes the topic of the request.
    is_context = [
        after and _PRONOUN.search(" ".join(next_one.split()[:_FIRST_WORDS]))
        for after, next_one in zip(is_request[1:], sentences[1:], strict=True)
    ]
    keeps = [one or other for one, other in zip(is_request, (*is_context, False), strict=True)]
    return query if all(keeps) else " ".join(sentence for sentence, keep in zip(sentences, keeps, strict=True) if keep)


def split_passages(query: str) -> tuple[str, ...]:
    """Return the sentences of a longer text, at most eight; neighbours are joined if there are more.

    A story may contain one request among sentences that have nothing to do with a tool. Empty for a
    short text, whose sentences explain each other.
    """
    sentences = _split_sentences(query)
    if len(sentences) < 2 or len(query.split()) < _MIN_STORY_WORDS:
        return ()
    size = -(-len(sentences) // MAX_SEGMENTS)
    return tuple(" ".join(sentences[at : at + size]) for at in range(0, len(sentences), size))


def _split_sentences(text: str) -> list[str]:
    return [found for found in map(str.strip, _SENTENCE_END.split(text)) if len(_WORD.findall(found)) > 1]


def _is_statement(sentence: str) -> bool:
    """Return whether a sentence contains no request: "My boss is in a mood today."."""
    if _TOOL_QUESTION.fullmatch(sentence):
        return True
    first = _WORD.search(sentence)
    if first is None or first.group().lower().replace("’", "'") not in _STATEMENT_START:
        return False
    if sentence.endswith(("?", "？")) or _WISH.search(sentence) or _match_request(sentence):
        return False
    clauses = (cut.end() for cut in _SEPARATOR.finditer(sentence))
    return not any(_starts_with_command(sentence[at : at + _CONTEXT_CHARS]) for at in clauses)


def _starts_with_command(clause: str) -> bool:
    """Return whether a clause starts with a verb and its object: "cut the line"."""
    first = _WORDS.search(clause)
    return first is not None and first.group(1) in VERBS and (first.group(2) or "") in _VERB_OBJECT


def _find_scope_end(text: str, end: int) -> int:
    """Return where a scope ends: at its comma, or before a verb with an object.

    "In Jira create a ticket, link it": the scope is "In Jira".
    """
    before = ""
    for number, found in enumerate(_WORDS.finditer(text, 0, end)):
        word = found.group(1)
        if number > 1 and word in VERBS and before not in _OPENER and _VERB_PHRASE.match(text, found.start()):
            return found.start()
        before = word.lower()
    return end


def find_names(query: str) -> tuple[str, ...]:
    """Return the capitalized names in a query: of services, places, people."""
    # In an all-uppercase text, capitals mean nothing.
    if not _CAPITAL.search(query, 1) or query.isupper():
        return ()
    return tuple(dict.fromkeys(_NAME.findall(query)))


def find_long_words(query: str) -> tuple[str, ...]:
    """Return the lowercase words of a query that are long enough to be names.

    Words excluded by a minus sign, and words far into the query, are left out.
    """
    return tuple(dict.fromkeys(_LONG_WORD.findall(query, 0, _MAX_NAME_CHARS)))


def _mark_list_items(query: str) -> str:
    """Return a query with a mark instead of the number or bullet of each list item."""
    items: list[re.Match[str]] = []
    is_lettered = False
    for found in _ITEM.finditer(query):
        number = (found.group(1) or found.group(2)).lower()
        is_lettered = is_lettered if items else number == "a"
        expected = chr(ord("a") + len(items)) if is_lettered else str(len(items) + 1)
        # A list is numbered from the first item on, and follows a heading or consists of requests:
        # "room 12) and seat b)" is not a list.
        is_item = items or _is_list_heading(query[: found.start()]) or _match_request(query[found.end() :])
        if number == expected and is_item:
            items.append(found)
    if len(items) > 1:
        starts = [0, *(item.end() for item in items)]
        ends = [*(item.start() for item in items), None]
        query = _ITEM_MARK.join(query[begin:end] for begin, end in zip(starts, ends, strict=True))
    text, count = _BULLET.subn(_ITEM_MARK, query)
    return text if count != 1 else _BULLET.sub("", query)


def _is_list_heading(text: str) -> bool:
    """Return whether a list may follow a text: it is empty, ends its line, or is a short heading."""
    text = text.rstrip(" \t")
    is_heading = text.endswith(":") and len(text[: _CONTEXT_CHARS + 1].split()) <= _MAX_HEADING_WORDS
    return not text or text.endswith("\n") or is_heading


def _split_requests(text: str, verbs: frozenset[str], has_head: bool) -> list[str]:
    """Return the requests of a text, each with the preceding text that is not a request.

    `has_head` is set if a request precedes the text.
    """
    pieces: list[str] = []
    pending = ""
    begin = last_weak = 0
    was_question = is_item = False
    for cut in (*_SEPARATOR.finditer(text), None):
        if cut is not None and cut.group(2) is not None:
            before = _WORD.findall(text[max(begin, cut.start() - _CONTEXT_CHARS) : cut.start()].lower())
            between = _WORD.findall(text[last_weak : cut.start()]) if last_weak > begin else ()
            after = text[cut.end() : cut.end() + _CONTEXT_CHARS]
            if not _separates_requests(before, after, 1 <= len(between) <= _MAX_ITEM_WORDS, verbs):
                last_weak = cut.end()
                continue
        piece = text[begin : cut.start() if cut else None].strip(" ,;.!?")
        begin = cut.end() if cut else begin
        was_item, is_item = is_item, cut is not None and cut.group() == _ITEM_MARK
        if not piece:
            is_item = is_item or was_item
            continue
        request = _find_request(piece, verbs)
        pending = f"{pending} {piece}".strip()
        count = len(_WORD.findall(piece, find_request_start(piece)))
        # List items after a request belong to it: "make a shopping list with - milk - eggs".
        is_listed = was_item and not has_head
        has_head = has_head or (request is not None and not was_item)
        if not is_listed and (request is None or count < _MIN_WORDS):
            continue
        is_question = request is not None and _is_question_word(request.group(1).lower())
        # "When did it start, how long did it take": the second question is about the same thing.
        is_follow_up = _PRONOUN.search(piece) is not None and not _NEW_QUESTION.match(piece)
        if was_question and is_question and (count <= _MAX_SHORT_WORDS or is_follow_up):
            pieces[-1] = f"{pieces[-1]} {pending}"
        else:
            pieces.append(pending)
        pending, was_question = "", is_question
    if pending and pieces:
        pieces[-1] = f"{pieces[-1]} {pending}"
    return pieces


def _split_notes(text: str) -> list[str]:
    """Return the short notes that a text consists of; none if it has other pieces."""
    if _NON_NOTE_SIGN.search(text):
        return []
    notes = [note for note in map(str.strip, _NOTE.split(text)) if note]
    for note in notes:
        words = _WORD.findall(note.lower())
        is_short = _MIN_NOTE_WORDS <= len(words) <= _MAX_NOTE_WORDS
        if not is_short or not _NOT_IN_NOTE.isdisjoint(words):
            return []
    return notes


def _split_things(text: str) -> list[str]:
    """Return a request for each of the things that one verb asks for; none if it is one thing."""
    head = _RETRIEVAL.match(text)
    things = _NEXT_THING.split(text[head.end() :]) if head else []
    words = [_WORD.findall(thing.lower()) for thing in things]
    if len(things) < 2 or any(len(some) < _MIN_THING_WORDS or not _AFTER_SUBJECT.isdisjoint(some) for some in words):
        return []
    if not _JOINS_THINGS.isdisjoint(words[0]) or ":" in things[0]:
        return []
    return [f"{text[: head.end()].strip()} {thing.strip()}" for thing in things] if head else []


def _find_request(piece: str, verbs: frozenset[str]) -> re.Match[str] | None:
    """Return the start of a request as `_match_request`, also after a dash, a colon or the name of a service.

    "The store is slow: could you restart it", "hubspot create a contact"
    """
    if found := _match_request(piece, verbs):
        return found
    words = list(islice(_WORDS.finditer(piece), 2))
    first = words[0].group(1) if len(words) == 2 and words[1].group(1) in verbs else ""
    if first.isalpha() and first.lower() not in _NOT_A_SERVICE:
        return words[1]
    found = _INNER_START.search(piece)
    request = _match_request(piece[found.end() :], verbs) if found else None
    return request if request and request.group(1) in verbs else None


def _match_request(text: str, verbs: frozenset[str] = VERBS) -> re.Match[str] | None:
    """Return the verb or question word that starts a request, and the next word; None if none does."""
    begin = find_request_start(text)
    if begin:
        # The task of a requested tool is a request, whatever it starts with.
        return _WORDS.search(text, begin)
    obligation = _OBLIGATION.match(text)
    begin = obligation.end() if obligation else 0
    subject = obligation is not None
    before = ""
    for found in islice(_WORDS.finditer(text, begin, _CONTEXT_CHARS), _MAX_LEAD_WORDS + 1):
        word = found.group(1).lower().replace("’", "'")
        is_question = verbs is VERBS and _is_question_word(word)
        # "I run a bakery" and "that is all" are statements.
        if (before in ("i", "we") and (word in verbs or is_question)) or (before == "that" and is_question):
            return None
        if word in verbs or is_question:
            return None if _MODIFIER_VERB.match(text, found.start()) else found
        if word not in _LEAD:
            return found if verbs is VERBS and not subject and _is_unlisted_verb(found) else None
        subject = subject or word not in _CONNECTIVE
        # After a modal verb it is a request: "can I list my files".
        before = "" if before in _MODALS and word in ("i", "we") else word
    return None


def _is_unlisted_verb(found: re.Match[str]) -> bool:
    """Return whether a word that is not in the list of verbs is used as one: "glue the pages", "DM her"."""
    word, follows = found.group(1), found.group(2) or ""
    if _HAVE.match(found.string, found.start()):
        return True
    if follows not in _VERB_OBJECT or word in _NON_VERB or not word.isalpha():
        return False
    return (word.islower() and not word.endswith(_NON_VERB_ENDINGS)) or word.isupper()


def _starts_object(word: str) -> bool:
    """Return whether a word starts the object of a verb, rather than a compound noun."""
    return word in _OPENER or not (word.isalpha() and word.islower())


def _has_object(text: str, gerund: re.Match[str]) -> bool:
    """Return whether a gerund has an object: "getting the weather" does, "shipping costs" does not."""
    follows = _WORDS.match(text, gerund.start())
    return follows is not None and bool(follows.group(2)) and _starts_object(follows.group(2))


def _is_question_word(word: str) -> bool:
    return word.partition("'")[0] in _QUESTION


def _separates_requests(before: list[str], after: str, is_listed: bool, verbs: frozenset[str]) -> bool:
    """Return whether a weak separator is followed by a request, and not just by a noun."""
    request = _match_request(after, verbs)
    if request is None:
        return False
    has_lead = _WORD.search(after, 0, request.start()) is not None
    verb, follows = request.group(1).lower(), request.group(2) or ""
    # "the size and scale of it", "and design can start"
    if verb in verbs and (follows == "of" or follows in _AFTER_SUBJECT):
        return False
    has_object = _starts_object(follows)
    # "deploy it to Vercel, Render and Netlify": a capitalized verb without an object is a name.
    if request.group(1)[0].isupper() and not has_object:
        return False
    if verbs is GERUNDS:
        return has_lead or has_object
    if has_lead or _is_question_word(verb) or has_object or not before:
        return True
    # "a first, last and display name", "win rates and pick rates", "the start and stop time"
    *_, earlier, last = "", *before
    if is_listed or (last == follows and earlier not in VERBS):
        return False
    return last not in VERBS or earlier not in _BEFORE_A_NOUN
