"""Queries in other languages, put into English word by word: our encoder reads no other.

The result is no translation. "mach die PDF-Datei kleiner" becomes "make the PDF file smaller", and
"对某个 deployment 扩缩容" becomes "to some deployment scale", which is enough to find the tool that does
it. A word that no glossary knows stays as it is: mostly it is a name.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import filterfalse
from typing import Final

from toolcrib.encoder.tokenizer import load_vocabulary

# Further into a text nobody reads: the encoder stops at 64 word pieces.
MAX_CHARS: Final = 600
# Letters that may follow a key that ends in `*`, if they make an ending.
MAX_ENDING_CHARS: Final = 4
# Letters that a part of a compound has at least.
MIN_COMPOUND_PART_CHARS: Final = 4
# The share of a text's words that must be another language's, if it has more than a few, not
# counting names.
MIN_FOREIGN_SHARE: Final = 0.4
MAX_SHORT_TEXT_WORDS: Final = 5

_FOLDER: Final = files("toolcrib.encoder") / "data" / "glossary"
_BY_SCRIPT: Final = (
    ("ja", re.compile("[\u3040-\u30fa]")),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("ko", re.compile("[\uac00-\ud7a3]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
_LATIN: Final = ("de", "es", "fr", "it", "pt")
LANGUAGES: Final = (*_LATIN, *(language for language, _ in _BY_SCRIPT))
# Scripts that do not part words, or not from their particles, and other words.
_UNPARTED: Final = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
_PIECE = re.compile(rf"([{_UNPARTED}]+)|([^\W\d_{_UNPARTED}]+)")
# What is left of a word when its known beginning is read: an ending.
_ENDING = re.compile("[\u3040-\u309f\uac00-\ud7a3]")
_SIGNS: Final = str.maketrans("，、。？！：；（）「」", ",,.?!:;()''", "¿¡")

# Common words elsewhere that are none in English, though an English vocabulary has them.
_COMMON_WORDS: Final = """
    alle auf aus bei bitte das dass dem den der dieser diese ein eine einem einen einer finde habe ich
    ist kann mein meine mit nach nicht noch oder sind suche und uns unser vom von wie wir wird zum zur
    al busca cada como con cual cuando de del desde donde el en es esta este esto hay haz las los lista
    mi mis nuestro para por que quiero se sin sobre su sus todas todos un una ver y
    au aux avec ce ces cette dans des du elle est et faire il je le les ma mes moi mon nos notre nous
    ou pas pour quel qui sont sur tous une voir vous
    alla anche che chi crea da dal dei della delle di dove gli ho lo mia mio nel nella non questa
    questo sono sul tutti uno
    ao aos das dos em foi mais meu minha na nas nao nosso pela pelo qual quero seu sua tem uma
"""
# Words of requests in English that are no words elsewhere.
_ENGLISH_WORDS: Final = """
    about add after all and any are at be before but by can check create delete does every find for
    from get give has have how if into is it its just let make my new not of one open or our out
    please run search send set show some than that the their them then there these they this to up
    update us use using want we what when where which who why will with you your
"""
# Words of jargon that an English vocabulary lacks, and that are others elsewhere.
_JARGON_WORDS: Final = "crud nas rota todo todos vue"
# How words end in the languages of our script. Other letters after a beginning make another word.
_ENDING_LETTERS: Final = """
    a aba aban ada adas ado ados ait ais amos ando ant ante ants ar are as ata ate ati ato ava ção
    ción ções e ee em emos en end ende endo ens ent ente er era ere eres es est et ete eur euse ez é
    ée ées és i iamo ida idas ido idos ie iert ieren iere if ig ige igen in indo innen ir ire isch
    ita ite ito ive ió n o ó on ono ons or ora os ra rai re ron s sión st t te ten tet tion uta ute
    uti uto um ung ungs zione zioni ador atore ável ível able ible ent mos
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
_JARGON: Final = frozenset(_JARGON_WORDS.split())
_ENDINGS: Final = frozenset(("", *_ENDING_LETTERS.split()))
_PUNCTUATION: Final = ".,;:?!\"'()"


class _Glossary:
    """The words of one language in English. A key that ends in `*` is how words begin."""

    def __init__(self, words: Mapping[str, str], has_compounds: bool) -> None:
        self._words = words
        self._has_compounds = has_compounds
        self._longest = max(map(len, words))

    def count_foreign(self, words: Iterable[str]) -> int:
        """How many of some words are known, and are other words in English."""
        found = ((word, self._look_up(word)) for word in words)
        return sum(
            english is not None
            and not word.startswith(english or " ")
            and not english.startswith(word)
            for word, english in found
        )

    def translate_word(self, word: str) -> str | None:
        """A word in English, or the words it is made of; none if it is not known."""
        known = self._look_up(word)
        if known is None and self._has_compounds:
            for end in range(len(word) - MIN_COMPOUND_PART_CHARS, MIN_COMPOUND_PART_CHARS - 1, -1):
                first, rest = self._look_up(word[:end]), self._look_up(word[end:])
                if first is not None and rest is not None:
                    return f"{first} {rest}"
        return known

    def translate_run(self, run: str) -> str:
        """Characters without a space between them, cut where the longest known words end."""
        said: list[str] = []
        is_ending = False
        at = 0
        while at < len(run):
            end, known = self._longest_match(run, at)
            if known is not None:
                said.append(known)
            # What follows a known word may be its ending; anything else that is not known is a name.
            elif not (is_ending and _ENDING.match(run[at])):
                said.append(run[at])
            is_ending = known is not None or is_ending
            at = end
        return " ".join(said)

    def _look_up(self, word: str) -> str | None:
        known = self._words.get(word)
        for end in range(len(word), max(len(word) - MAX_ENDING_CHARS, 1) - 1, -1):
            if known is not None:
                break
            if word[end:] in _ENDINGS or not word.isascii():
                known = self._words.get(f"{word[:end]}*")
        return known

    def _longest_match(self, run: str, at: int) -> tuple[int, str | None]:
        for end in range(min(len(run), at + self._longest), at, -1):
            known = self._words.get(run[at:end])
            if known is not None:
                return end, known
        return at + 1, None


@lru_cache(maxsize=2_048)
def translate_to_english(text: str) -> str:
    """A text word by word in English; as it is if it is in English, or in a language not known."""
    plain = text[:MAX_CHARS]
    if not plain.isascii():
        plain = unicodedata.normalize("NFKC", plain).translate(_SIGNS)
    language = _detect_language(plain)
    if language is None:
        return text
    glossary = _load_glossary(language)

    def one(piece: re.Match[str]) -> str:
        run, word = piece.groups()
        if run:
            return f" {glossary.translate_run(run)} "
        known = glossary.translate_word(word.lower())
        return word if known is None else known

    return " ".join(_PIECE.sub(one, plain).split())


def glossary_checksum() -> str:
    """Which glossaries these are: a checksum of all of them."""
    return " ".join(str(zlib.crc32((_FOLDER / f"{one}.tsv").read_bytes())) for one in LANGUAGES)


def _detect_language(text: str) -> str | None:
    """The language of a text, as far as we know it; none if it is English."""
    if not text.isascii():
        for language, script in _BY_SCRIPT:
            if script.search(text):
                return language
    # Most texts are in English, which their words tell even with the signs that stand at them.
    spoken = text.lower().replace("-", " ").split()
    enough = _min_foreign_words(spoken)
    if enough > len(spoken) or len(_non_english(spoken)) < enough:
        return None
    spoken = [word.strip(_PUNCTUATION) for word in spoken]
    english = _english_words()[0]
    foreign = [
        word
        for word in _non_english(spoken)
        if word in _COMMON or word.removesuffix("s") not in english
    ]
    enough = _min_foreign_words(spoken)
    plain = sum(word[0].islower() for word in text.split())
    if plain > MAX_SHORT_TEXT_WORDS:
        enough = max(enough, math.ceil(MIN_FOREIGN_SHARE * plain))
    # What cannot be enough need not be looked up in any glossary.
    if len(foreign) < enough:
        return None
    told = {one: _load_glossary(one).count_foreign(foreign) for one in _LATIN}
    most = max(told.values())
    if most < enough:
        return None
    # Languages that are much alike share words: the one that knows more of the rest.
    likely = [one for one in _LATIN if told[one] == most]
    return max(likely, key=lambda one: _load_glossary(one).count_foreign(spoken))


def _non_english(spoken: list[str]) -> list[str]:
    """The words that do not tell that a text is in English."""
    return list(filterfalse(_english_words()[1].__contains__, spoken))


def _min_foreign_words(spoken: list[str]) -> int:
    """How many foreign words it takes: a text in English may quote, and jargon looks like several."""
    return 2 * sum(map(_ENGLISH.__contains__, spoken)) + 1


@cache
def _english_words() -> tuple[frozenset[str], frozenset[str]]:
    """All of them, and those that are no common words elsewhere."""
    english = _JARGON.union(load_vocabulary())
    return english, english - _COMMON


@cache
def _load_glossary(language: str) -> _Glossary:
    words: dict[str, str] = {}
    # Both write with the same characters, and some words are the same in both.
    for name in ("ja", "zh", language) if language in ("ja", "zh") else (language,):
        for line in (_FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
            word, _, english = line.partition("\t")
            words[word] = english
    return _Glossary(words, has_compounds=language == "de")
