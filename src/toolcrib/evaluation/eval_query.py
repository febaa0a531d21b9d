"""What an eval set asks, and what would be a right answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# What a question may be told apart by; figures are given for each value of each.
FACETS = ("kind", "subset", "lang")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuery:
    """A query and, for each thing it needs, the tools any of which will do.

    Without needs it is impossible: the right answer is that nothing fits.
    """

    id: str
    text: str
    targets: tuple[frozenset[str], ...]
    # The steps were told apart, so that covering all of them can be asked for.
    has_steps: bool = False
    kind: str = ""
    subset: str = ""
    lang: str = ""

    @property
    def is_impossible(self) -> bool:
        """Whether no tool serves it."""
        return not self.targets

    @property
    def relevant_ids(self) -> frozenset[str]:
        """Every tool that serves any of its needs."""
        return frozenset().union(*self.targets)


def build_targets(
    relevant: Sequence[str], groups: Iterable[Iterable[str]] = (), *, any_of: bool = False
) -> tuple[frozenset[str], ...]:
    """What is needed: one of each group, or one of all, or each for itself."""
    stated = tuple(map(frozenset, groups))
    if stated or not relevant:
        return stated
    if any_of:
        return (frozenset(relevant),)
    return tuple(frozenset((id,)) for id in dict.fromkeys(relevant))
