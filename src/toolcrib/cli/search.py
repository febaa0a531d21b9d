"""`toolcrib search`: find the tools that serve a need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from toolcrib.cli.match_reasons import reasons_in_json, reasons_in_words
from toolcrib.cli.options import (
    catalog_option,
    json_option,
    offset_option,
    opened_catalog,
    where_options,
)
from toolcrib.cli.printing import Table, plain, print_json, wrapped
from toolcrib.search.engine import MAX_LIMIT, RANKERS, SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker
from toolcrib.search.regex.ranker import Regex
from toolcrib.search.results import Explanation, Group, SearchResult

_MOST_GROUPED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    query: str
    catalog_files: tuple[str, ...]
    limit: int
    offset: int
    mode: str
    where: Where
    ignore_case: bool
    lenient: bool
    explain: bool
    why: str | None
    as_json: bool

    def __post_init__(self) -> None:
        if self.ignore_case and self.mode != "regex":
            raise click.UsageError("--ignore-case is for --mode regex; other modes do so anyway.")
        if self.lenient and self.mode != "lexical":
            raise click.UsageError("--lenient is for --mode lexical.")

    def rankers(self) -> Mapping[str, Ranker]:
        """The engine's rankers, set as was asked."""
        return {
            **RANKERS,
            "lexical": Lexical(syntax="lenient" if self.lenient else "strict"),
            "regex": Regex(ignore_case=self.ignore_case),
        }


class _Search(click.Command):
    """A command whose argument may well begin with a minus, as a word to leave out does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as fault:
            if fault.option_name.startswith("--"):
                raise
            raise click.UsageError(
                f"No such option: {fault.option_name}. A query that begins with a minus comes last, "
                "behind --, such as: toolcrib search --limit 3 -- '-email send'",
                ctx,
            ) from fault


def _one_query(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> str:
    return " ".join(words)


@click.command("search", cls=_Search)
@click.argument("query", nargs=-1, required=True, metavar="QUERY...", callback=_one_query)
@catalog_option
@click.option(
    "--limit",
    default=5,
    type=click.IntRange(1, MAX_LIMIT),
    metavar="N",
    help="How many tools at most.  [default: 5]",
)
@offset_option
@click.option(
    "--mode",
    default="hybrid",
    type=click.Choice(tuple(RANKERS)),
    help="How to read QUERY.  [default: hybrid]",
)
@where_options
@click.option(
    "--ignore-case", is_flag=True, help="In regex mode, do not mind upper and lower case."
)
@click.option(
    "--lenient", is_flag=True, help="In lexical mode, read a malformed query as plain words."
)
@click.option("--explain", is_flag=True, help="Say which words hit which fields.")
@click.option("--why", metavar="ID", help="Say why this one tool was found, or was not.")
@json_option
def command(**options: Any) -> None:
    """Find the tools that serve a need.

    QUERY says what is needed, in your own words; or it is a tool's name, or any of:
    "a phrase", prefix*, field:word, +must, -not, AND, OR, NOT and ( ).
    """
    question = _Question(**options)
    engine = SearchEngine(opened_catalog(question.catalog_files), question.rankers())
    result = engine.search(
        question.query,
        limit=question.limit,
        offset=question.offset,
        mode=question.mode,
        where=question.where,
    )
    why = None
    if question.why is not None:
        why = engine.explain(
            question.query,
            question.why,
            limit=min(question.offset + question.limit, MAX_LIMIT),
            mode=question.mode,
            where=question.where,
        )
    # Each is compared with each, which is too much to ask of thousands.
    few = len(result) <= _MOST_GROUPED
    groups = engine.groups(result) if few else tuple(map(Group, result))
    if question.as_json:
        print_json(_document(result, groups, why))
        return
    _print_hits(question, result, groups)
    if why is not None:
        _print_why(why)


def _document(
    result: SearchResult, groups: Sequence[Group], why: Explanation | None
) -> dict[str, Any]:
    hits = [
        {"score": hit.score, "reasons": reasons_in_json(hit.reasons), "tool": hit.tool.to_dict()}
        for hit in result.hits
    ]
    document: dict[str, Any] = {
        "query": result.query,
        "mode": result.mode,
        "confident": result.confident,
        "confidence": result.confidence,
        "hits": hits,
        "groups": [[hit.tool.id for hit in (group.best, *group.others)] for group in groups],
        "more": result.more,
        "unserved": list(result.unserved),
        "notes": list(result.notes),
    }
    if why is not None:
        document["why"] = {
            "id": why.tool.id,
            "returned": why.returned,
            "rank": why.rank,
            "score": why.score,
            "verdict": why.verdict,
            "reasons": reasons_in_json(why.reasons),
        }
    return document


def _print_hits(question: _Question, result: SearchResult, groups: Sequence[Group]) -> None:
    if not result.hits:
        click.echo(wrapped(_nothing(question)))
    elif not result.confident:
        click.echo(wrapped("Nothing fits well; these are the nearest."))
    table = Table.of((group.best.tool.id for group in groups), lead_columns=6)
    for group in groups:
        hit = group.best
        click.echo(table.row(f"{hit.score:.2f}", hit.tool.id, hit.tool.description))
        reasons = reasons_in_words(hit.reasons) if question.explain else ""
        if reasons:
            click.secho(table.aside(f"for {reasons}"), fg="yellow")
        if group.others:
            others = ", ".join(plain(other.tool.id) for other in group.others)
            click.echo(table.aside(f"also: {others}"))
    for need in result.unserved:
        click.echo(wrapped(f"Nothing fits: {plain(need)}"))
    for text in result.notes:
        click.secho(wrapped(f"Note: {plain(text)}"), dim=True)
    if result.more:
        following = question.offset + question.limit
        click.secho(f"There are more: add --offset {following}.", dim=True)


def _nothing(question: _Question) -> str:
    """That nothing was found, and what to try next."""
    if question.offset:
        return "Nothing so far down; try a smaller --offset."
    if question.where != Where():
        hint = "Try it without the filters."
    elif question.mode == "regex" and not question.ignore_case:
        hint = "Patterns mind upper and lower case: try --ignore-case."
    elif question.mode == "fuzzy":
        hint = "Try other words; `toolcrib tools` lists what there is."
    else:
        hint = "Try other words, or --mode fuzzy; `toolcrib tools` lists what there is."
    return f"Nothing found for {plain(question.query)!r}. {hint}"


def _print_why(why: Explanation) -> None:
    click.echo()
    click.secho(f"Why {plain(why.tool.id)}?", bold=True)
    verdict = plain(why.verdict)
    click.echo(wrapped(f"{verdict[:1].upper()}{verdict[1:]}.", "  "))
    if why.reasons:
        score = f"Score {why.score:.2f} from {reasons_in_words(why.reasons)}."
        click.echo(wrapped(score, "  "))
