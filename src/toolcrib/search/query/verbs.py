"""Verbs that start requests, most of them English, and their gerunds."""

from __future__ import annotations

from typing import Final

_VERBS: Final = """
    abort accept activate add adjust alert align allow analyse analyze animate annotate announce
    answer append apply approve archive arrange ask assemble assign attach audit authenticate
    authorize back backup ban bind block blast book bookmark boost boot break bring broadcast browse build bump
    bundle burn buy calculate call cancel capture change charge chart chat check choose clean clear click
    clip clone close collect combine comment commit compare compile compose compress compute
    concatenate configure confirm connect continue convert copy correct count crawl create crop cut
    deactivate debug declare decline decode decrypt define delete deliver deploy describe design
    destroy detach detect determine diagnose diff disable discard disconnect discover dispatch
    display dispute download draft drag draw drop dump duplicate edit email embed enable encrypt
    enforce enlarge enrich enter enumerate erase escalate estimate evaluate examine execute expand
    explain export expose extend extract fetch figure file fill filter find finish fix flag flip
    flush follow forecast fork format forward freeze gather generate geocode get give glue go grab
    grade grant grep group halt hand hide hang highlight hire hook identify import improve include
    increase index infer inform ingest inject insert inspect install instruct interpret interrupt
    investigate invite invoice invoke issue join keep kick kill label launch lay leave link lint
    list listen load localize locate lock log look lookup lower mail make manage map mark measure
    mention merge message migrate minimize mint mirror modify monitor mount move mute name narrow
    normalize note notify obtain offer open optimize order organise organize outline overlay
    overwrite pack page paint parse pass paste patch pause pay perform persist pick pin ping place
    plan play plot point populate post predict prepare present press preview print process produce
    program promote provide provision publish pull purchase purge push put query queue quiet quote
    raise rank rate react read reboot rebuild recall recommend record recover redeploy reduce
    refresh refund register reindex reject release reload relocate remember remind remove rename
    render renew reopen reorder repeat replace reply report reproduce request rerun reschedule
    research reserve reset resize resolve respond restart restore restrict resume retrieve retry
    return reverse revert review revoke rewrite ring roll rotate route run sample sandbox save say
    scaffold scan schedule scrape screenshot search see select sell send separate set share ship
    shorten show shrink shut sign silence simulate skip snap sniff solve sort spin split stage stamp star
    start step stick stop store stream strip submit subscribe subtract suggest sum summarise summarize
    suspend swap switch sync tag take tally tap tell terminate test throw toggle track train
    transcribe transfer transition translate trash trigger trim truncate turn type unarchive
    unassign unblock undo unfollow unfreeze unlink unlock unmute unpause unpin unpublish unshare
    unstar unsubscribe untag update upgrade upload upscale use validate verify view visualize wait
    walk wash watch whitelist wipe withdraw work wrap write zip zoom
    new
    such zeig erstelle schick sende leg füge suche lösche öffne speichere hol
    busca crea envía muestra borra guarda añade pon sube cherche crée envoie montre ajoute cerca
    invia mostra salva aggiungi
"""


def _build_gerunds(verb: str) -> set[str]:
    """Return possible gerunds of a verb, such as "creating" and "getting"; extra forms do no harm."""
    return {f"{verb}ing", f"{verb.removesuffix('e')}ing", f"{verb}{verb[-1]}ing"}


VERBS: Final = frozenset(_VERBS.split())
GERUNDS: Final = frozenset(gerund for verb in VERBS for gerund in _build_gerunds(verb))
