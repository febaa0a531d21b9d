"""Strip the preamble and the closing words of a query, by a list of verbs.

"Hi! I'm looking for a tool that can shrink a photo. Thanks!" is a request to shrink a photo. The rest
of the text would make tools that search for tools, or send thanks, rank higher than the right one.

Only unambiguous text is removed: "list the tools that are deprecated" is about tools, "say thank you"
is about thanks. In case of doubt a query stays as it is.
"""

from __future__ import annotations

import json
import re
from typing import Final

from toolcrib.search.query.expression import has_operators

_VERBS: Final = """
    abort accept acknowledge activate adapt add adjust aggregate alert align allocate allow analyse analyze animate
    annotate announce answer append apply approve archive arrange ask assemble assess assign associate attach audit
    authenticate authorize back backtest backup ban bind blast block book bookmark boost boot break bring broadcast
    browse build bump bundle burn buy calculate call cancel capture categorise categorize change charge chart chat check
    choose cite clean clear click clip clone close collect combine comment commit compare compile compose compress
    compute concatenate conduct configure confirm connect continue convert copy correct count crawl create crop
    customise customize cut deactivate debug decide declare decline decode decompile decrypt dedupe deduplicate define
    delegate delete deliver demote deny deploy deposit describe design destroy detach detect determine diagnose diff
    disable discard disconnect discover dismiss dispatch display dispute distribute divide download draft drag draw drop
    dump duplicate edit email embed enable encode encrypt enforce enlarge enqueue enrich enter enumerate erase escalate
    estimate evaluate examine execute expand explain explore export expose extend extract fetch figure file fill filter
    finalise finalize find finish fix flag flip flush follow forecast fork format forward freeze gather generate geocode
    get give glue go grab grade grant greet grep group halt hand handle hang hide highlight hire hook hover identify
    import improve include increase index infer inform ingest initialise initialize initiate inject insert inspect
    install instruct integrate interact interpret interrupt intersect investigate invite invoice invoke isolate issue
    join keep kick kill label launch lay leave link lint list listen load localize locate lock log look lookup lower
    mail make manage map mark measure mention merge message migrate minimize mint mirror modify monitor mount move
    multiply mute name narrow navigate normalize note notify obtain offer open optimize order organise organize outline
    overlay overwrite pack page paint parse pass paste patch pause pay peek perform persist pick pin ping place plan
    play plot point populate post postpone predict prepare present press preview print prioritise prioritize process
    produce program promote protect provide provision publish pull purchase purge push put query queue quiet quote raise
    rank rate react read reassign rebase reboot rebuild recall recognize recommend record recover redeliver redeploy
    redo reduce refresh refund register reindex reject release reload relocate remember remind remove rename render
    renew reopen reorder repeat rephrase replace reply report reproduce reproject request rerun resample reschedule
    research reserve reset resize resolve respond restart restore restrict resume retrieve retry return retweet reverse
    revert review revoke rewrite ring roll rotate route run sample sandbox save say scaffold scan schedule scrape
    screenshot scroll search see select sell send separate set share ship shorten show shrink shut sign silence simplify
    simulate skip snap sniff snooze solve sort spin split ssh stage stamp standardize star start stash step stick stop
    store stream strip submit subscribe subtract suggest sum summarise summarize suspend swap swipe switch sync
    synthesize tag take tally tap tell terminate test throw tick toggle track train transcribe transfer transform
    transition translate trash triage trigger trim troubleshoot truncate turn tweet type unarchive unassign unblock
    undelegate undo unfollow unfreeze ungroup uninstall unlink unlock unmerge unmute unpause unpin unprotect unpublish
    unregister unset unshare unstage unstar unsubscribe untag update upgrade upload upscale upsert use validate verify
    view visit visualize void wait walk wash watch whitelist wipe withdraw work wrap write zip zoom
    new
    such zeig erstelle schick sende leg füge suche lösche öffne speichere hol
    busca crea envía muestra borra guarda añade pon sube cherche crée envoie montre ajoute cerca
    invia mostra salva aggiungi
"""
VERBS: Final = frozenset(_VERBS.split())
# A fast check: a query with none of these, and no such first word, has no preamble.
_HINTS: Final = ("tool", " way to ", "thing that ", "user", " wants ", " is to ", "thank", "help", "...")
_FIRST_WORDS: Final = frozenset(["hi", "hello", "hey", "greetings", "good", "task:", "request:", "goal:"])
# A code fence and a JSON object start with one of these.
_WRAPPERS: Final = "`{["
_QUOTES: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "„": "“", "«": "»", "‘": "’"}
# Phrases before the tool that is requested. No two start alike, so matching never backtracks far.
_PLEASE: Final = r"(?:(?:please|kindly|okay|ok|so|and|also|now),? )?"
_POLITELY: Final = rf"{_PLEASE}(?:(?:can|could|would|will) you )?(?:(?:please|kindly) )?"
_I_NEED: Final = (
    r"(?:(?:i|we) )?(?:also |just |really )?(?:need|want|require)(?: to (?:find|use|have))?"
    r"|(?:i['’]?m |i am |we['’]?re |we are )?looking for|(?:i|we)(?:['’]d| would) like"
    r"|(?:is|are) there|do you (?:have|know(?: of)?)"
)
_FIND: Final = r"(?:find|search for|look for|locate|suggest|recommend|give)(?: (?:me|us))?"
_ANY: Final = r"(?:(?:an?|any|some|the|one|another|good|right|best|suitable|appropriate|available|mcp) ){0,4}"
# Phrases between the tool and its task. Some are unambiguous. Others may also describe the tool itself
# ("tools to be removed", "a way to the beach"), so the next word decides.
_THAT_CAN: Final = (
    r"(?:(?:that|which) (?:can|could|will|would|lets? (?:me|us)|(?:allows?|enables?) (?:me|us) to"
    r"|helps? (?:me|us)(?: to)?)"
    r"|(?:(?:that|which) (?:is|are) )?(?:capable of|able to)"
    r"|(?:(?:that|which) )?(?:i|we) (?:can|could|should) use (?:to|for)"
    r"|(?:should|can|could) (?:i|we) use (?:to|for)|to help (?:me|us)(?: to)?)"
    r"(?! (?:be|been|have|not|i|we|you)\b) "
)
_NO_NOUN: Final = (
    r"(?! (?:be|been|have|not|use|i|we|you|he|she|it|me|us|him|her|them|an?|the|this|that|these"
    r"|those|my|your|our|his|its|their|is|are|was|has|does)\b)(?-i:(?! [A-Z])) "
)
_TO: Final = rf"(?:(?:available )?to|can|could|for(?= \w+ing\b)|(?:that|which)(?= \w{{2,}}s\b)){_NO_NOUN}"
_THIS: Final = r"(?: (?:for|to do|that can do))?(?: (?:this|that|it|the following(?: \w+)?))?\s*: "
_TOOL: Final = (
    rf"(?:(?:{_I_NEED}|{_FIND}) {_ANY}tools?(?:{_THIS}| {_THAT_CAN}| {_TO})"
    rf"|(?:(?:which|what) )?{_ANY}tools? (?:{_THAT_CAN}|{_TO})"
    rf"|(?:{_I_NEED}) {_ANY}(?:way to{_NO_NOUN}|(?:something|anything) {_THAT_CAN}))"
)
# A code fence around the whole text, or after a heading: "Here is the task: ```…```".
_FENCE = re.compile(r"\s*([^`\n]{0,60}:)?\s*```[\w+-]*\s*(.*?)\s*```\s*$", re.DOTALL)
_DOTS = re.compile(r"(?<=[\w)])\s?\.{3,}$")
_WORD = re.compile(r"[^\W\d_]+")
# Limits of the text that is matched.
_MAX_PREAMBLE_CHARS: Final = 200
_MAX_ENDING_CHARS: Final = 80


def _build_gerunds(verb: str) -> set[str]:
    """Return possible gerunds of a verb, such as "creating" and "getting"; extra forms do no harm."""
    return {f"{verb}ing", f"{verb.removesuffix('e')}ing", f"{verb}{verb[-1]}ing"}


GERUNDS: Final = frozenset(gerund for verb in VERBS for gerund in _build_gerunds(verb))


def _compile_words(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which a space matches any amount of whitespace."""
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


_TOOL_REQUEST = _compile_words(rf"{_POLITELY}{_TOOL}")
# Greetings, calls for help and announcements of a request.
_PREAMBLE = _compile_words(
    r"(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day))"
    r"(?: (?:there|all|everyone|everybody|team|folks))?[!,.] "
    rf"|{_PLEASE}(?:(?:can|could|would|will) you )?(?:please )?help (?:me|us)(?: out)?"
    r"(?: with (?:something|this|it|the following|a task|a few things|one thing))?[?.!:] "
    r"|(?:the )?user(?:['’]s)? (?:request|query|question|task|goal)\s*: "
    rf"|(?:(?:the )?(?:user|customer|client) wants(?: (?:me|us|you))?"
    rf"|(?:the|my|our) (?:goal|aim|task|objective) (?:here )?is) to{_NO_NOUN}"
)
_LABEL = _compile_words(r"(?:task|request|goal)\s*: ")
# Closing words after the end of a sentence; "say thanks" is a request.
_ENDING = _compile_words(
    r"(?<=[,.!?;\n])\s*(?:(?:many )?thanks|thank you|(?:can|could|would) you (?:please )?help)"
    r"(?: (?:me|us|out|with (?:that|this|it)|a (?:lot|bunch|million)|so much|very much|in advance"
    r"|for (?:your|the) help)){0,3}[\s.!?]*$"
)
# Polite phrases before a request.
_POLITE = _compile_words(
    r"(?:(?:please|kindly),? )?(?:(?:can|could|would|will) you|it would be (?:great|nice|good|lovely|helpful) if you could"
    r"|(?:i|we)(?:['’]d| would) like you to|(?:i|we) (?:want|need) you to)(?: (?:please|kindly))? "
    r"(?!help\b|please\b|recommend\b|suggest\b|find me an?\b|give me an?\b)(?=\w+ \w)"
)


def strip_preamble(query: str) -> str:
    """Return a query without preamble, closing words and surrounding quotes."""
    text = _unwrap(query) if query[:1] in _WRAPPERS or "```" in query else query
    text = _strip_quotes(text) if text[:1] in _QUOTES or text[:1].isspace() else text
    text = text[polite.end() :] if (polite := _POLITE.match(text)) else text
    lowered = text.lower()
    first = lowered.split(None, 1)[:1]
    if not any(map(lowered.__contains__, _HINTS)) and (not first or first[0].rstrip("!,.") not in _FIRST_WORDS):
        return text
    stripped = text.strip()
    rest = _strip_ending(stripped[_find_preamble_end(stripped) :])
    # A single word is not enough of a request: "hello, world".
    return rest if rest != stripped and len(_WORD.findall(rest)) > 1 else text


def _unwrap(query: str) -> str:
    """Return the text in a code fence or in a JSON value; the query itself if there is none."""
    fence = _FENCE.match(query)
    text = fence.group(2) if fence and not _starts_with_verb(fence.group(1) or "") else query
    if text[:1] not in "{[":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # The request is the longest text: {"query": "book a hotel in Rome", "locale": "en"}.
    return max(_list_texts(value), key=len, default=text).strip() or text


def _list_texts(value: object) -> list[str]:
    """Return the texts in a JSON value, those of the last message of a conversation only."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _list_texts(item)]
    if not isinstance(value, list):
        return []
    items = value[-1:] if value and isinstance(value[-1], dict) else value
    return [text for item in items for text in _list_texts(item)]


def _starts_with_verb(text: str) -> bool:
    """Return whether a text before a code fence is the request: "Explain this: ```…```"."""
    word = _WORD.search(text)
    return word is not None and word.group().lower() in VERBS


def find_request_start(text: str) -> int:
    """Return where the task starts in a text that asks for a tool; 0 if it does not."""
    # A fast check, because most texts do not ask for a tool.
    if "ool" not in text and "way" not in text and "thing" not in text:
        return 0
    found = _TOOL_REQUEST.match(text.lstrip(), 0, _MAX_PREAMBLE_CHARS)
    return found.end() + len(text) - len(text.lstrip()) if found else 0


def _find_preamble_end(text: str) -> int:
    begin = 0
    while found := (
        _PREAMBLE.match(text, begin, begin + _MAX_PREAMBLE_CHARS)
        or _TOOL_REQUEST.match(text, begin, begin + _MAX_PREAMBLE_CHARS)
        or _match_label(text, begin)
    ):
        begin = found.end()
    return begin


def _match_label(text: str, begin: int) -> re.Match[str] | None:
    """Match a label before a request; "task: 1234 status" is about a task."""
    found = _LABEL.match(text, begin)
    word = _WORD.match(text, found.end()) if found else None
    return found if word and word.group().lower() in VERBS else None


def _strip_ending(text: str) -> str:
    found = _ENDING.search(text, max(len(text) - _MAX_ENDING_CHARS, 0))
    if found:
        text = text[: found.start()].rstrip(" \t\n,.!?;")
    return _DOTS.sub("", text)


def _strip_quotes(query: str) -> str:
    """Remove the quotes around a whole query, which models add without meaning a phrase.

    They stay if they escape operators.
    """
    text = query.strip()
    closing = _QUOTES.get(text[:1])
    inner = text[1:-1]
    if closing is None or text[-1] != closing or not inner.strip():
        return query
    is_several = closing in inner or text[0] in inner
    return query if is_several or has_operators(inner) else inner
