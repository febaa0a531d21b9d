from __future__ import annotations

import pytest

from toolcrib.encoder.tokenizer import MAX_WORD_CHARS, WordPieceTokenizer

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "send", "##er", "##s", "cafe", "!", "中", "a", "'"]
TOKENIZER = WordPieceTokenizer(VOCABULARY)


def _tokenize(text: str, limit: int = 64) -> list[str]:
    return [VOCABULARY[id] for id in TOKENIZER.encode(text, limit)]


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
def test_text_is_split_into_the_longest_pieces(text: str, expected: list[str]) -> None:
    assert _tokenize(text) == ["[CLS]", *expected, "[SEP]"]


def test_text_is_truncated_to_the_limit() -> None:
    assert _tokenize("send " * 99, 5) == ["[CLS]", "send", "send", "send", "[SEP]"]
