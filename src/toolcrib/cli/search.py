"""`toolcrib search`: find the tools that serve a need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from toolcrib.cli.match_reasons import format_reasons, reasons_to_json
from toolcrib.cli.options import (
    catalog_option,
    json_option,
    offset_option,
    open_catalog,
    where_options,
)
from toolcrib.cli.printing import ToolTable, print_json, sanitize, wrap
from toolcrib.search.engine import MAX_LIMIT, RANKERS, SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker
from toolcrib.search.regex import RegexRanker
from toolcrib.search.results import Explanation, HitGroup, SearchResult

_MAX_GROUPED_HITS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchOptions:
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
            "lexical": LexicalRanker(syntax="lenient" if self.lenient else "strict"),
            "regex": RegexRanker(ignore_case=self.ignore_case),
        }


class _SearchCommand(click.Command):
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


def _join_words(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> str:
    return " ".join(words)


@click.command("search", cls=_SearchCommand)
@click.argument("query", nargs=-1, required=True, metavar="QUERY...", callback=_join_words)
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
    question = _SearchOptions(**options)
    engine = SearchEngine(open_catalog(question.catalog_files), question.rankers())
    result = engine.search(
        question.query,
        limit=question.limit,
        offset=question.offset,
        mode=question.mode,
        where=question.where,
    )
    if question.as_json or question.explain:
        result = engine.with_reasons(result)
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
    few = len(result) <= _MAX_GROUPED_HITS
    groups = engine.group_hits(result) if few else tuple(map(HitGroup, result))
    if question.as_json:
        print_json(_result_to_json(result, groups, why))
        return
    _print_hits(question, result, groups)
    if why is not None:
        _print_explanation(why)


def _result_to_json(
    result: SearchResult, groups: Sequence[HitGroup], why: Explanation | None
) -> dict[str, Any]:
    hits = [
        {"score": hit.score, "reasons": reasons_to_json(hit.reasons), "tool": hit.tool.to_dict()}
        for hit in result.hits
    ]
    document: dict[str, Any] = {
        "query": result.query,
        "mode": result.mode,
        "confident": result.is_confident,
        "confidence": result.confidence,
        "hits": hits,
        "groups": [[hit.tool.id for hit in (group.best, *group.others)] for group in groups],
        "more": result.has_more,
        "unserved": list(result.uncovered),
        "notes": list(result.notes),
    }
    if why is not None:
        document["why"] = {
            "id": why.tool.id,
            "returned": why.is_returned,
            "rank": why.rank,
            "score": why.score,
            "verdict": why.verdict,
            "reasons": reasons_to_json(why.reasons),
        }
    return document


def _print_hits(question: _SearchOptions, result: SearchResult, groups: Sequence[HitGroup]) -> None:
    if not result.hits:
        click.echo(wrap(_nothing_found_message(question)))
    elif not result.is_confident:
        click.echo(wrap("Nothing fits well; these are the nearest."))
    table = ToolTable.for_ids((group.best.tool.id for group in groups), lead_columns=6)
    for group in groups:
        hit = group.best
        click.echo(table.format_row(f"{hit.score:.2f}", hit.tool.id, hit.tool.description))
        reasons = format_reasons(hit.reasons) if question.explain else ""
        if reasons:
            click.secho(table.format_detail(f"for {reasons}"), fg="yellow")
        if group.others:
            others = ", ".join(sanitize(other.tool.id) for other in group.others)
            click.echo(table.format_detail(f"also: {others}"))
    for need in result.uncovered:
        click.echo(wrap(f"Nothing fits: {sanitize(need)}"))
    for text in result.notes:
        click.secho(wrap(f"Note: {sanitize(text)}"), dim=True)
    if result.has_more:
        following = question.offset + question.limit
        click.secho(f"There are more: add --offset {following}.", dim=True)


def _nothing_found_message(question: _SearchOptions) -> str:
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
    return f"Nothing found for {sanitize(question.query)!r}. {hint}"


def _print_explanation(why: Explanation) -> None:
    click.echo()
    click.secho(f"Why {sanitize(why.tool.id)}?", bold=True)
    verdict = sanitize(why.verdict)
    click.echo(wrap(f"{verdict[:1].upper()}{verdict[1:]}.", "  "))
    if why.reasons:
        score = f"Score {why.score:.2f} from {format_reasons(why.reasons)}."
        click.echo(wrap(score, "  "))
