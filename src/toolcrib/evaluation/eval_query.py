"""A query of an eval set, with the tools that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Metrics are also reported for each value of these fields.
FACETS = ("kind", "subset", "lang")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuery:
    """A query with its targets: for each target, one of several tools must be found.

    A query without targets is impossible: the correct result is that no tool fits.
    """

    id: str
    text: str
    targets: tuple[frozenset[str], ...]
    # Whether each target is a step of a task, so that covering all steps can be measured.
    has_steps: bool = False
    kind: str = ""
    subset: str = ""
    lang: str = ""

    @property
    def is_impossible(self) -> bool:
        """Whether no tool answers the query."""
        return not self.targets

    @property
    def relevant_ids(self) -> frozenset[str]:
        """The ids of all tools in any target."""
        return frozenset().union(*self.targets)


def build_targets(
    relevant: Sequence[str], groups: Iterable[Iterable[str]] = (), *, any_of: bool = False
) -> tuple[frozenset[str], ...]:
    """Return the groups if there are any, else one target with all tools or one per tool."""
    targets = tuple(map(frozenset, groups))
    if targets or not relevant:
        return targets
    if any_of:
        return (frozenset(relevant),)
    return tuple(frozenset((id,)) for id in dict.fromkeys(relevant))
