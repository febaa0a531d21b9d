"""Tools for lists, JSON, encodings and colours."""

from __future__ import annotations

import base64
import colorsys
import csv
import hashlib
import io
import json
import random
import urllib.parse
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from toolcrib.demo.number_tools import MAX_ITEMS, Numbers, Whole
from toolcrib.demo.text_tools import Text

Items = Annotated[list[str], Field(description="The items.", max_length=MAX_ITEMS)]
Colour = Annotated[str, Field(description="A colour as in #ff8800.", pattern="^#?[0-9a-fA-F]{6}$")]
Byte = Annotated[int, Field(ge=0, le=255)]
Seed = Annotated[int, Field(description="The same seed gives the same result.", ge=0, le=10**9)]


def sort_list(items: Items, descending: bool = False) -> list[str]:
    """Sort a list of texts alphabetically."""
    return sorted(items, key=str.casefold, reverse=descending)


def sort_numbers(numbers: Numbers, descending: bool = False) -> list[float]:
    """Sort numbers by size."""
    return sorted(numbers, reverse=descending)


def remove_duplicates(items: Items) -> list[str]:
    """Remove repeated items from a list."""
    return list(dict.fromkeys(items))


def count_items(items: Items) -> dict[str, int]:
    """Count how often each item is in a list."""
    return {item: items.count(item) for item in dict.fromkeys(items)}


def common_items(first: Items, second: Items) -> list[str]:
    """Return the items that two lists have in common."""
    return [item for item in dict.fromkeys(first) if item in set(second)]


def missing_items(first: Items, second: Items) -> list[str]:
    """Return the items of a first list that a second list lacks."""
    return [item for item in dict.fromkeys(first) if item not in set(second)]


def split_into_groups(items: Items, size: Annotated[int, Field(ge=1, le=1000)]) -> list[list[str]]:
    """Split a list into groups of a given size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def roll_dice(
    dice: Annotated[int, Field(ge=1, le=100)] = 1, sides: Annotated[int, Field(ge=2, le=1000)] = 6, seed: Seed = 0
) -> list[int]:
    """Roll dice and return the value of each."""
    generator = random.Random(seed)
    return [generator.randint(1, sides) for _ in range(dice)]


def format_json(text: Text) -> str:
    """Indent a JSON document so that people can read it."""
    return json.dumps(json.loads(text), indent=2, ensure_ascii=False)


def minify_json(text: Text) -> str:
    """Remove unneeded whitespace from a JSON document."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def csv_to_json(text: Text) -> list[dict[str, Any]]:
    """Turn a table in CSV, with a line of headings, into JSON objects."""
    return list(csv.DictReader(io.StringIO(text)))


def encode_base64(text: Text) -> str:
    """Encode a text in Base64."""
    return base64.b64encode(text.encode()).decode()


def decode_base64(text: Text) -> str:
    """Decode a text from Base64."""
    return base64.b64decode(text, validate=True).decode()


def encode_url(text: Text) -> str:
    """Percent-encode a text for use in a web address."""
    return urllib.parse.quote(text, safe="")


def decode_url(text: Text) -> str:
    """Decode a percent-encoded text from a web address."""
    return urllib.parse.unquote(text)


def hash_text(text: Text, algorithm: Literal["md5", "sha1", "sha256", "sha512"] = "sha256") -> str:
    """Compute the checksum of a text."""
    return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()


def number_to_base(number: Whole, base: Literal[2, 8, 16] = 2) -> str:
    """Return a whole number in binary, octal or hexadecimal."""
    return format(number, {2: "b", 8: "o", 16: "x"}[base])


def to_roman_numeral(number: Annotated[int, Field(ge=1, le=3999)]) -> str:
    """Return a number in Roman numerals."""
    signs = ["M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"]
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    numeral = ""
    for sign, value in zip(signs, values, strict=True):
        count, number = divmod(number, value)
        numeral += sign * count
    return numeral


def hex_to_rgb(colour: Colour) -> list[int]:
    """Split a colour in hexadecimal into red, green and blue."""
    return list(bytes.fromhex(colour.removeprefix("#")))


def rgb_to_hex(red: Byte, green: Byte, blue: Byte) -> str:
    """Return a colour of red, green and blue in hexadecimal."""
    return _hex((red, green, blue))


def complementary_colour(colour: Colour) -> str:
    """Return the opposite of a colour on the colour wheel."""
    red, green, blue = (part / 255 for part in hex_to_rgb(colour))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    opposite = colorsys.hls_to_rgb((hue + 0.5) % 1, light, strength)
    return _hex(round(part * 255) for part in opposite)


def colour_contrast(first: Colour, second: Colour) -> float:
    """Return the contrast of two colours as in WCAG, from 1 to 21: how well text in one colour can be read on another."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return round((light + 0.05) / (dark + 0.05), 2)


def _hex(parts: Iterable[int]) -> str:
    return f"#{bytes(parts).hex()}"


def _luminance(colour: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in hex_to_rgb(colour))
    ]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
