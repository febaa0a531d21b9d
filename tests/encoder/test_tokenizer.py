from __future__ import annotations

import pytest

from toolcrib.encoder.tokenizer import MAX_WORD_CHARS, WordPieceTokenizer

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "send",
    "##er",
    "##s",
    "cafe",
    "!",
    "中",
    "a",
    "'",
]
PIECES = WordPieceTokenizer(VOCABULARY)


def _spelt(text: str, limit: int = 64) -> list[str]:
    return [VOCABULARY[id] for id in PIECES.encode(text, limit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Senders!", ["send", "##er", "##s", "!"]),
        ("café", ["cafe"]),
        ("a中a", ["a", "中", "a"]),
        ("se\x00nd a\tsend\u3000a", ["send", "a", "send", "a"]),
        ("’", ["[UNK]"]),
        ("zebra", ["[UNK]"]),
        ("sendzz", ["[UNK]"]),
        ("a" * (MAX_WORD_CHARS + 1), ["[UNK]"]),
    ],
)
def test_a_text_is_spelt_with_the_longest_pieces(text: str, expected: list[str]) -> None:
    assert _spelt(text) == ["[CLS]", *expected, "[SEP]"]


def test_a_text_is_cut_to_the_limit() -> None:
    assert _spelt("send " * 99, 5) == ["[CLS]", "send", "send", "send", "[SEP]"]
