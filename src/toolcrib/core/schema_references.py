"""Resolve the references inside a JSON Schema.

The versions of JSON Schema disagree on what gives a part of a schema its own base URI, and so on how a
path is resolved. To bound the work of a validator, a reference resolves here to every part that any
version could mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

# The parts with a base URI that enclose a location, innermost first; the last is the whole schema.
BaseParts = tuple[Mapping[str, Any], ...]
PartLocation = tuple[object, BaseParts]

# Base URIs nested deeper than this are not resolved.
MAX_BASE_DEPTH: Final = 8

# A validator knows the schemas of this host; their content is not available here.
_META_SCHEMA_HOST: Final = "json-schema.org"
_ENCODED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


class SchemaDocument:
    """A schema as plain JSON, with its references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root: PartLocation = (root, (root,))

    def resolve_references(
        self, part: Mapping[str, Any], bases: BaseParts
    ) -> Iterator[list[PartLocation]]:
        """Yield the possible targets of each reference of a part; an empty list if unknown."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(part.get(keyword), str):
                yield self._resolve(part[keyword], bases)
        if "$recursiveRef" in part:
            yield [
                self.root,
                *(location for some in self._parts_by_address.values() for location in some),
            ]

    def _resolve(self, reference: str, bases: BaseParts) -> list[PartLocation]:
        address, _, encoded = reference.partition("#")
        fragment = _decode_percent(encoded)
        if len(bases) > MAX_BASE_DEPTH:
            return []
        if fragment and not fragment.startswith("/"):
            return self._parts_by_anchor.get(fragment, [])
        starts: list[PartLocation] = [(base, bases) for base in bases]
        if address:
            starts = self._parts_by_address.get(_address_ending(address), [])
        found = (_follow_path(start, fragment) for start in starts)
        return [location for location in found if location[0] is not None]

    @cached_property
    def _parts_by_address(self) -> dict[str, list[PartLocation]]:
        """The parts with an id, by the last segment of its path, which relative references end in."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, bases in self._parts:
            for address in (text.partition("#")[0] for text in _ids(part)):
                if _META_SCHEMA_HOST in _normalize_address(address):
                    return {}
                if ending := _address_ending(address):
                    found[ending].append((part, bases))
        return found

    @cached_property
    def _parts_by_anchor(self) -> dict[str, list[PartLocation]]:
        """The parts with an anchor, by its name."""
        found: dict[str, list[PartLocation]] = defaultdict(list)
        for part, bases in self._parts:
            names = [part.get("$anchor"), part.get("$dynamicAnchor")]
            names += [text.partition("#")[2] for text in _ids(part)]
            for name in filter(None, names):
                found[str(name)].append((part, bases))
        return found

    @property
    def _parts(self) -> Iterator[tuple[Mapping[str, Any], BaseParts]]:
        """Every object that could be a schema, with its base parts."""
        waiting = [self.root]
        while waiting:
            part, bases = waiting.pop()
            if isinstance(part, Mapping):
                bases = enter_part(part, bases)
                yield part, bases
                waiting.extend((inner, bases) for inner in part.values())
            elif isinstance(part, list):
                waiting.extend((inner, bases) for inner in part)


def enter_part(part: object, bases: BaseParts) -> BaseParts:
    """Return the base parts of what is inside a part."""
    if not isinstance(part, Mapping) or not any(text.partition("#")[0] for text in _ids(part)):
        return bases
    is_new = all(part is not base for base in bases) and len(bases) <= MAX_BASE_DEPTH
    return (part, *bases) if is_new else bases


def _ids(part: Mapping[str, Any]) -> list[str]:
    return [part[keyword] for keyword in ("$id", "id") if isinstance(part.get(keyword), str)]


def _address_ending(address: str) -> str:
    """Return the part of an address that does not depend on its base; empty if there is none."""
    plain = _normalize_address(address)
    ending = plain.rpartition("/")[2]
    return "" if "?" in plain or _META_SCHEMA_HOST in plain or ending in {".", ".."} else ending


def _normalize_address(address: str) -> str:
    return _decode_percent(address).casefold()


def _decode_percent(text: str) -> str:
    """Return the text of an address with percent-encoding decoded."""
    return _ENCODED.sub(
        lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), text
    )


def _follow_path(location: PartLocation, path: str) -> PartLocation:
    target, bases = location
    for step in path.split("/")[1:]:
        bases = enter_part(target, bases)
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = {str(at): one for at, one in enumerate(target)}.get(name)
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target, bases
