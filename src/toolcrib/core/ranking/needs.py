"""One query that asks for several things, cut into the things it asks for. No language model.

People join needs with full stops, commas, `and`, `then`. The same signs join the things of *one*
need ("from Lisbon and Porto"), so a piece counts as a need of its own only if it begins the way a
request does: with a verb in the imperative, or with a question.
"""

from __future__ import annotations

import re
from typing import Final

MAX_NEEDS: Final = 8
# A piece of fewer words belongs to the one before it.
_FEWEST_WORDS: Final = 2

# Ends a need whatever follows.
_STRONG: Final = r"[.!?](?=\s)|[;\n。！？；]+|\b(?:and |, ?)?then\b|\b(?:after that|afterwards)\b"
# Ends a need if what follows begins one.
_AND: Final = "and plus und dann y luego et puis e poi"
_WEAK: Final = rf",|，|、|\b(?:{_AND.replace(' ', '|')})\b|&"
# Signs and words without one of which nothing is cut.
_SIGN = re.compile(r"[.!?]\s|[;\n。！？；,，、&]")
_JOINS: Final = frozenset(f"then after afterwards {_AND}".split())
_LETTERS = re.compile(r"\w+")
_CUT = re.compile(rf"({_STRONG})|({_WEAK})", re.IGNORECASE)
# "In our GitLab repo, …" and "zendesk: …" are said of all that follows.
_SCOPE = re.compile(
    r"\s*((?:in|on|with|using|via|for|inside|from)\b[^,:;.]{1,50},|[^,:;.]{1,30}:(?=\s))", re.I
)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
# A word with a capital that no sentence begins with.
_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)(?<![^\s'\"(])[A-Z][\w.-]*\w")
_CAPITAL = re.compile(r"[A-Z]")
# What may stand before the verb of a request.
_LEADS: Final = """
    also and afterwards please finally lastly next so now just can could would you i i'd want need
    to like we let's help me secondly first second third if it's that
"""
_QUESTIONS: Final = "what which who whose where when how why is are does do did has"
_VERBS: Final = """
    accept activate add adjust alert analyse analyze announce answer append apply approve archive
    arrange ask assemble assign attach authorize back backup ban bind block book boost bring build
    buy calculate call cancel capture change charge chart chat check choose clean clear clip clone
    close collect combine comment commit compare compile compose compress compute configure confirm
    connect convert copy correct count crawl create crop cut deactivate debug declare decline
    decrypt define delete deliver deploy describe detect determine diagnose disable discard
    disconnect discover dispatch display dispute download draft drag draw drop dump duplicate edit
    email embed enable encrypt enforce enrich enter erase escalate estimate evaluate examine execute
    expand explain export extend extract fetch figure file fill filter find finish fix flag flip
    follow forecast fork format forward freeze gather generate get give glue go grab grade grant
    group halt hand hide highlight hire hook identify import improve include increase index inform
    insert inspect install instruct interpret investigate invite invoice invoke issue join keep kick
    kill label launch lay leave list listen load localize locate lock log look lower mail make map mark
    measure merge message migrate minimize mirror modify monitor mount move mute name narrow
    normalize note notify obtain offer open optimize order organise organize overlay pack page paint
    parse pass paste pause pay pick pin ping place plan play plot point populate post predict
    prepare present preview print process produce program promote provide provision publish pull
    purge push put query queue quiet quote raise rank rate read rebuild recommend record recover
    redeploy reduce refresh refund register reject release reload remind remove rename render
    reopen reply report reproduce request reschedule reserve reset resize resolve restart restore
    restrict resume retrieve return review revoke rewrite roll rotate route run sample save say scan
    schedule scrape search see select sell send separate set share ship shorten show shut sign
    silence simulate skip snap sort spin split stage stamp star start stick stop store stream stick
    submit subscribe suggest sum summarise summarize suspend swap switch sync tag take tally tell
    terminate test throw toggle track train transcribe transfer transition translate trash trigger
    trim turn type unassign unblock undo unlock unpin unsubscribe update upgrade upload use validate
    verify view visualize wait walk wash watch wipe withdraw work wrap write zip zoom
    new
    such zeig erstelle schick sende leg füge such suche lösche öffne speichere hol
    busca crea envía muestra borra guarda añade pon sube cherche crée envoie montre ajoute cerca
    invia mostra salva aggiungi
"""
_LEAD: Final = frozenset(_LEADS.split())
_REQUEST: Final = frozenset(f"{_QUESTIONS} {_VERBS}".split())


def needs(query: str) -> tuple[str, ...]:
    """The needs of a query, in its order, each with the scope said of all; one if it is just one."""
    # Most queries hold nothing that could cut them, which is told much sooner than where to cut.
    if not _SIGN.search(query) and _JOINS.isdisjoint(_LETTERS.findall(query.lower())):
        return (query,)
    scope = _SCOPE.match(query)
    shared = scope.group(1).strip(" ,:") if scope else ""
    body = query[scope.end() :] if scope else query
    pieces = _pieces(body)
    if len(pieces) < 2:
        return (query,)
    return tuple(f"{shared}: {piece}" if shared else piece for piece in pieces[:MAX_NEEDS])


def names(query: str) -> tuple[str, ...]:
    """The names that a query mentions, as far as capitals tell: of services, places, people."""
    if not _CAPITAL.search(query, 1):
        return ()
    return tuple(dict.fromkeys(_NAME.findall(query)))


def _pieces(text: str) -> list[str]:
    """The requests of a text, each with what was said before it that asks for nothing by itself."""
    pieces: list[str] = []
    told = ""
    begin = 0
    for cut in (*_CUT.finditer(text), None):
        is_weak = cut is not None and cut.group(2) is not None
        if is_weak and cut is not None and not _begins_a_request(text[cut.end() :]):
            continue
        piece = text[begin : cut.start() if cut else None].strip(" ,;.!?")
        begin = cut.end() if cut else begin
        if not piece:
            continue
        if _begins_a_request(piece) and len(_WORD.findall(piece)) >= _FEWEST_WORDS:
            pieces.append(f"{told} {piece}".strip())
            told = ""
        else:
            told = f"{told} {piece}".strip()
    if told and pieces:
        pieces[-1] = f"{pieces[-1]} {told}"
    return pieces


def _begins_a_request(text: str) -> bool:
    for word in _WORD.findall(text[:80])[:5]:
        lower = word.lower()
        if lower in _REQUEST:
            return True
        if lower not in _LEAD:
            return False
    return False
