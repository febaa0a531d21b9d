"""Tools for text."""

from __future__ import annotations

import difflib
import re
import textwrap
import unicodedata
from typing import Annotated

from pydantic import Field

Text = Annotated[str, Field(description="The text.", max_length=20_000)]
Word = Annotated[str, Field(max_length=200)]

_WORD = re.compile(r"[^\W_]+")


def count_words(text: Text) -> int:
    """Count the words of a text."""
    return len(_WORD.findall(text))


def count_characters(text: Text) -> dict[str, int]:
    """Count the characters, letters, digits, spaces and lines of a text."""
    return {
        "characters": len(text),
        "letters": sum(map(str.isalpha, text)),
        "digits": sum(map(str.isdigit, text)),
        "spaces": sum(map(str.isspace, text)),
        "lines": len(text.splitlines()),
    }


def uppercase_text(text: Text) -> str:
    """Return a text in capital letters."""
    return text.upper()


def lowercase_text(text: Text) -> str:
    """Return a text in lower case."""
    return text.lower()


def title_case_text(text: Text) -> str:
    """Capitalize every word of a text, as in a headline."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split())


def snake_case_name(text: Text) -> str:
    """Turn a phrase or a camelCase name into a snake_case identifier."""
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return "_".join(_WORD.findall(separated)).lower()


def slugify_title(text: Text) -> str:
    """Turn a title into a slug for a web address: no accents, dashes between words."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return "-".join(_WORD.findall(plain)).lower()


def reverse_text(text: Text) -> str:
    """Reverse a text."""
    return text[::-1]


def replace_text(text: Text, find: Word, replacement: Word) -> str:
    """Replace every occurrence of a word or phrase in a text."""
    return text.replace(find, replacement) if find else text


def find_in_text(text: Text, find: Word) -> list[int]:
    """Return the positions at which a word or phrase occurs in a text."""
    return [match.start() for match in re.finditer(re.escape(find), text)] if find else []


def wrap_text(text: Text, columns: Annotated[int, Field(ge=10, le=200)] = 72) -> str:
    """Break long lines so that a text fits a number of columns."""
    return textwrap.fill(text, columns)


def shorten_text(text: Text, characters: Annotated[int, Field(ge=10, le=10_000)] = 100) -> str:
    """Shorten a text to a length, at a word boundary, with dots at the end."""
    return textwrap.shorten(text, characters, placeholder=" …")


def compare_texts(first: Text, second: Text) -> str:
    """Show the lines in which two texts differ, as a diff."""
    return "\n".join(difflib.ndiff(first.splitlines()[:300], second.splitlines()[:300]))


def text_similarity(first: Word, second: Word) -> float:
    """Return how similar two short texts are, from 0 to 1."""
    return round(difflib.SequenceMatcher(None, first, second).ratio(), 4)


def check_palindrome(text: Text) -> bool:
    """Return whether a text is a palindrome, which reads the same backwards."""
    letters = [letter for letter in text.casefold() if letter.isalnum()]
    return letters == letters[::-1]


def most_frequent_words(text: Text, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> list[str]:
    """Return the words that occur most often in a text."""
    counts: dict[str, int] = {}
    for word in _WORD.findall(text.casefold()):
        counts[word] = counts.get(word, 0) + 1
    return [f"{word} ({counts[word]})" for word in sorted(counts, key=lambda w: -counts[w])[:limit]]


def extract_email_addresses(text: Text) -> list[str]:
    """Extract the email addresses from a text."""
    words = (word.strip(".,;:!?<>()[]\"'") for word in text.split())
    return [word for word in words if re.fullmatch(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", word)]


def extract_numbers(text: Text) -> list[float]:
    """Extract the numbers from a text."""
    return [float(number) for number in re.findall(r"-?\d{1,15}(?:\.\d{1,15})?", text)]


def remove_accents(text: Text) -> str:
    """Remove the accents from the letters of a text."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def caesar_cipher(text: Text, shift: Annotated[int, Field(ge=-25, le=25)] = 13) -> str:
    """Shift every letter of a text along the alphabet; 13 is ROT13."""

    def shift_letter(letter: str) -> str:
        if not (letter.isascii() and letter.isalpha()):
            return letter
        first = ord("a") if letter.islower() else ord("A")
        return chr((ord(letter) - first + shift) % 26 + first)

    return "".join(map(shift_letter, text))
