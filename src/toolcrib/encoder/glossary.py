"""Translate texts to English word by word, because the encoder was trained on English only.

"mach die PDF-Datei kleiner" becomes "make the pdf-file smaller", and "对某个 deployment 扩缩容" becomes
"to some deployment scale". The result is ungrammatical but good enough to find tools. Words that are
not in a glossary stay unchanged; most of them are names.
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

# The encoder reads 64 word pieces, so translating more text has no effect.
MAX_CHARS: Final = 600
# The longest inflection that may follow a key ending in `*`.
MAX_ENDING_CHARS: Final = 4
# The shortest part of a German compound that is looked up.
MIN_COMPOUND_PART_CHARS: Final = 4
# In a longer text, this share of the words that are not capitalized must be foreign.
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
# Scripts that write words, or words and their particles, without spaces.
_UNSPACED: Final = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
# An unspaced run of characters, or a word.
_RUN_OR_WORD = re.compile(rf"([{_UNSPACED}]+)|([^\W\d_{_UNSPACED}]+)")
# Hiragana or hangul after a known word are its inflection.
_INFLECTION = re.compile("[\u3040-\u309f\uac00-\ud7a3]")
_ASCII_PUNCTUATION: Final = str.maketrans("，、。？！：；（）「」", ",,.?!:;()''", "¿¡")

# Common foreign words that occur in the encoder's English vocabulary.
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
# Words of English requests that are not words of the other languages.
_ENGLISH_WORDS: Final = """
    about add after all and any are at be before but by can check create delete does every find for
    from get give has have how if into is it its just let make my new not of one open or our out
    please run search send set show some than that the their them then there these they this to up
    update us use using want we what when where which who why will with you your
"""
# Technical words that are missing from the English vocabulary and look foreign.
_JARGON_WORDS: Final = "crud nas rota todo todos vue"
# Inflections in the languages with Latin script. Other letters after a stem make a different word.
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
    """Maps the words of one language to English. A key that ends in `*` is a stem."""

    def __init__(self, words: Mapping[str, str], has_compounds: bool) -> None:
        self._words = words
        self._has_compounds = has_compounds
        self._longest = max(map(len, words))

    def count_foreign(self, words: Iterable[str]) -> int:
        """Return how many words the glossary has with a translation that is spelled differently."""
        translations = ((word, self._look_up(word)) for word in words)
        return sum(
            english is not None and not word.startswith(english or " ") and not english.startswith(word)
            for word, english in translations
        )

    def translate_word(self, word: str) -> str | None:
        """Return the translation of a word, or of the two parts of a compound, or None."""
        english = self._look_up(word)
        if english is None and self._has_compounds:
            for end in range(len(word) - MIN_COMPOUND_PART_CHARS, MIN_COMPOUND_PART_CHARS - 1, -1):
                first, rest = self._look_up(word[:end]), self._look_up(word[end:])
                if first is not None and rest is not None:
                    return f"{first} {rest}"
        return english

    def translate_run(self, run: str) -> str:
        """Split a run of characters at the longest known words and return their translations."""
        parts: list[str] = []
        follows_word = False
        start = 0
        while start < len(run):
            end, english = self._longest_match(run, start)
            if english is not None:
                parts.append(english)
            # An unknown character after a known word may be its inflection; otherwise keep it.
            elif not (follows_word and _INFLECTION.match(run[start])):
                parts.append(run[start])
            follows_word = english is not None or follows_word
            start = end
        return " ".join(parts)

    def _look_up(self, word: str) -> str | None:
        english = self._words.get(word)
        for end in range(len(word), max(len(word) - MAX_ENDING_CHARS, 1) - 1, -1):
            if english is not None:
                break
            if word[end:] in _ENDINGS or not word.isascii():
                english = self._words.get(f"{word[:end]}*")
        return english

    def _longest_match(self, run: str, start: int) -> tuple[int, str | None]:
        for end in range(min(len(run), start + self._longest), start, -1):
            english = self._words.get(run[start:end])
            if english is not None:
                return end, english
        return start + 1, None


@lru_cache(maxsize=2_048)
def translate_to_english(text: str) -> str:
    """Return a word-by-word translation, or the text itself if it is English or not supported."""
    head = text[:MAX_CHARS]
    if not head.isascii():
        head = unicodedata.normalize("NFKC", head).translate(_ASCII_PUNCTUATION)
    language = _detect_language(head)
    if language is None:
        return text
    glossary = _load_glossary(language)

    def translate(match: re.Match[str]) -> str:
        run, word = match.groups()
        if run:
            return f" {glossary.translate_run(run)} "
        english = glossary.translate_word(word.lower())
        return word if english is None else english

    return " ".join(_RUN_OR_WORD.sub(translate, head).split())


def glossary_checksum() -> str:
    """Return the checksums of all glossary files."""
    return " ".join(str(zlib.crc32((_FOLDER / f"{language}.tsv").read_bytes())) for language in LANGUAGES)


def _detect_language(text: str) -> str | None:
    """Return the code of a supported language other than English, or None."""
    if not text.isascii():
        for language, script in _BY_SCRIPT:
            if script.search(text):
                return language
    # Fast path: most texts are English, and that shows even before punctuation is removed.
    words = text.lower().replace("-", " ").split()
    required = _min_foreign_words(words)
    if required > len(words) or len(_non_english(words)) < required:
        return None
    words = [word.strip(_PUNCTUATION) for word in words]
    english = _english_words()[0]
    foreign = [word for word in _non_english(words) if word in _COMMON or word.removesuffix("s") not in english]
    required = _min_foreign_words(words)
    lowercase = sum(word[0].islower() for word in text.split())
    if lowercase > MAX_SHORT_TEXT_WORDS:
        required = max(required, math.ceil(MIN_FOREIGN_SHARE * lowercase))
    if len(foreign) < required:
        return None
    counts = {code: _load_glossary(code).count_foreign(foreign) for code in _LATIN}
    most = max(counts.values())
    if most < required:
        return None
    # Related languages share words. Among equals, take the one that knows most of all words.
    candidates = [code for code in _LATIN if counts[code] == most]
    return max(candidates, key=lambda code: _load_glossary(code).count_foreign(words))


def _non_english(words: list[str]) -> list[str]:
    """Return the words that are not evidence for English."""
    return list(filterfalse(_english_words()[1].__contains__, words))


def _min_foreign_words(words: list[str]) -> int:
    """Return how many foreign words a text needs: English text may quote or use jargon."""
    return 2 * sum(map(_ENGLISH.__contains__, words)) + 1


@cache
def _english_words() -> tuple[frozenset[str], frozenset[str]]:
    """Return all English words, and those that are not common foreign words."""
    english = _JARGON.union(load_vocabulary())
    return english, english - _COMMON


@cache
def _load_glossary(language: str) -> _Glossary:
    words: dict[str, str] = {}
    # Japanese and Chinese share characters and words, so each falls back to the other's glossary.
    for name in ("ja", "zh", language) if language in ("ja", "zh") else (language,):
        for line in (_FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
            word, _, english = line.partition("\t")
            words[word] = english
    return _Glossary(words, has_compounds=language == "de")
