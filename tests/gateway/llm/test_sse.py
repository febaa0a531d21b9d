from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.sse import EventBuffer, SseParser, format_event


def read(*chunks: bytes) -> list[str]:
    reader = SseParser()
    return [one for chunk in chunks for one in reader.parse_chunk(chunk)]


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        (b"data: a\n\n", ["a"]),
        (b"event: x\ndata: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b": a comment\nid: 7\nretry: 9\ndata:a\n\n", ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"event: x\n\ndata\n\n", [""]),
        (b"data: a", []),
        (b"data: \xff\n\n", ["\N{REPLACEMENT CHARACTER}"]),
    ],
)
def test_events_are_parsed_as_in_the_standard(sent: bytes, events: list[str]) -> None:
    assert read(sent) == events
    assert read(*(sent[at : at + 1] for at in range(len(sent)))) == events


lines = st.sampled_from([b"data: a", b"event: x", b": c", b"", b"", b"data: \xc3\xa9", b"id: 1"])
ends = st.sampled_from([b"\n", b"\r\n"])


@given(st.lists(st.tuples(lines, ends), max_size=20), st.data())
def test_chunk_boundaries_do_not_matter(parts: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    sent = b"".join(line + end for line, end in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=5)))
    chunks = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert read(*chunks) == read(sent)
    whole = EventBuffer()
    passed = [whole.push_chunk(chunk) for chunk in chunks]
    assert b"".join(passed) + whole.take_rest() == sent


def test_formatted_event_is_parsed_again() -> None:
    assert read(format_event("ping", b"{}") + format_event("", b"[1]")) == ["{}", "[1]"]


def test_incomplete_event_is_buffered() -> None:
    whole = EventBuffer()
    assert whole.push_chunk(b"data: a\n\ndata: b\n") == b"data: a\n\n"
    assert whole.push_chunk(b"\n") == b"data: b\n\n"
    assert whole.push_chunk(b"data: c\r\n\r") == b""
    assert whole.push_chunk(b"\ndata") == b"data: c\r\n\r\n"
    assert whole.take_rest() == b"data"


@pytest.mark.parametrize("piece", [b"x", b"data: x\n"])
def test_event_over_the_size_limit_is_an_error(piece: bytes) -> None:
    reader, whole = SseParser(1_000), EventBuffer(1_000)
    with pytest.raises(RequestFailed, match="1,000 bytes"):
        for _ in range(2_000):
            reader.parse_chunk(piece)
    with pytest.raises(RequestFailed, match="1,000 bytes"):
        for _ in range(2_000):
            whole.push_chunk(piece)


def test_size_limit_applies_to_each_event() -> None:
    reader, whole = SseParser(1_000), EventBuffer(1_000)
    for _ in range(100):
        assert len(reader.parse_chunk(b"data: " + b"x" * 90 + b"\n\n")) == 1
        assert whole.push_chunk(b"data: " + b"x" * 90 + b"\n\n")
