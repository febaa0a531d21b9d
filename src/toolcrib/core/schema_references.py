"""Where the references inside a JSON Schema may lead.

The versions of JSON Schema disagree on what gives a part of a schema an address of its own, and so
on where a path inside it begins. Whoever bounds the work of a validator must not guess too little:
a reference leads here to every place that one of them could mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

# The parts with an address that a place lies in, the innermost first; the last is the whole schema.
BaseParts = tuple[Mapping[str, Any], ...]
PartLocation = tuple[object, BaseParts]

# Deeper inside each other than this no address is followed.
MAX_BASE_DEPTH: Final = 8

# A validator knows the schemas that live there, and we do not.
_META_SCHEMA_HOST: Final = "json-schema.org"
_ENCODED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


class SchemaDocument:
    """A schema as plain JSON, in which references can be followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root: PartLocation = (root, (root,))

    def resolve_references(
        self, part: Mapping[str, Any], homes: BaseParts
    ) -> Iterator[list[PartLocation]]:
        """For each reference of a part the places it may lead to; none if that is not known."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(part.get(keyword), str):
                yield self._resolve(part[keyword], homes)
        if "$recursiveRef" in part:
            yield [
                self.root,
                *(place for some in self._parts_by_address.values() for place in some),
            ]

    def _resolve(self, reference: str, homes: BaseParts) -> list[PartLocation]:
        address, _, encoded = reference.partition("#")
        fragment = _decode_percent(encoded)
        if len(homes) > MAX_BASE_DEPTH:
            return []
        if fragment and not fragment.startswith("/"):
            return self._parts_by_anchor.get(fragment, [])
        starts: list[PartLocation] = [(home, homes) for home in homes]
        if address:
            starts = self._parts_by_address.get(_address_ending(address), [])
        found = (_follow_path(start, fragment) for start in starts)
        return [place for place in found if place[0] is not None]

    @cached_property
    def _parts_by_address(self) -> dict[str, list[PartLocation]]:
        """The parts with an address, by what it ends in: to that any relative address leads."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, homes in self._parts:
            for address in (text.partition("#")[0] for text in _ids(part)):
                if _META_SCHEMA_HOST in _normalize_address(address):
                    return {}
                if ending := _address_ending(address):
                    found[ending].append((part, homes))
        return found

    @cached_property
    def _parts_by_anchor(self) -> dict[str, list[PartLocation]]:
        """The parts that have a name, by it."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, homes in self._parts:
            names = [part.get("$anchor"), part.get("$dynamicAnchor")]
            names += [text.partition("#")[2] for text in _ids(part)]
            for name in filter(None, names):
                found[str(name)].append((part, homes))
        return found

    @property
    def _parts(self) -> Iterator[tuple[Mapping[str, Any], BaseParts]]:
        """Everything that could be a schema."""
        waiting = [self.root]
        while waiting:
            part, homes = waiting.pop()
            if isinstance(part, Mapping):
                homes = enter_part(part, homes)
                yield part, homes
                waiting.extend((inner, homes) for inner in part.values())
            elif isinstance(part, list):
                waiting.extend((inner, homes) for inner in part)


def enter_part(part: object, homes: BaseParts) -> BaseParts:
    """The homes of what is inside a part."""
    if not isinstance(part, Mapping) or not any(text.partition("#")[0] for text in _ids(part)):
        return homes
    is_new = all(part is not home for home in homes) and len(homes) <= MAX_BASE_DEPTH
    return (part, *homes) if is_new else homes


def _ids(part: Mapping[str, Any]) -> list[str]:
    return [part[keyword] for keyword in ("$id", "id") if isinstance(part.get(keyword), str)]


def _address_ending(address: str) -> str:
    """What stays of an address wherever it is read from; empty if nothing is sure to."""
    plain = _normalize_address(address)
    ending = plain.rpartition("/")[2]
    return "" if "?" in plain or _META_SCHEMA_HOST in plain or ending in {".", ".."} else ending


def _normalize_address(address: str) -> str:
    return _decode_percent(address).casefold()


def _decode_percent(text: str) -> str:
    """Text of an address without its percent signs."""
    return _ENCODED.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text
    )


def _follow_path(place: PartLocation, path: str) -> PartLocation:
    target, homes = place
    for step in path.split("/")[1:]:
        homes = enter_part(target, homes)
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = {str(at): one for at, one in enumerate(target)}.get(name)
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target, homes
