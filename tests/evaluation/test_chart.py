from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

from tests.evaluation.test_summary import QUESTIONS, summarised
from toolcrib.evaluation.chart import MAX_ROWS, picture
from toolcrib.evaluation.eval_query import EvalQuery, build_targets

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def bars(svg: str) -> list[ElementTree.Element]:
    rects = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [one for one in rects if one.get("height") == "12" and one.get("y") != "51"]


def test_one_set_is_drawn_with_its_kinds() -> None:
    svg = picture([summarised("lexical", "regex")])
    told = texts(svg)
    assert "Tool search on office (3 tools)" in told
    assert {"lexical", "regex", "all", "exact", "multi"} <= set(told)
    assert "impossible" not in told
    assert {"hit@5", "nDCG@10", "all-steps@5", "AUC"} <= set(told)
    # Four rows of two modes: hit@5, nDCG@10 and AUC in all, steps in three.
    assert len(bars(svg)) == 2 * (4 * 3 + 3)
    assert "prefers-color-scheme: dark" in svg


def test_bars_are_as_long_as_the_figure_and_stay_in_the_picture() -> None:
    svg = picture([summarised("lexical", "regex")])
    width = float(ElementTree.fromstring(svg).get("width", ""))
    lengths = [float(bar.get("width", "")) for bar in bars(svg)]
    assert (min(lengths), max(lengths)) == (0, 180)
    lines = ElementTree.fromstring(svg).iter(f"{SVG}line")
    assert all(float(line.get("x2", "")) < width for line in lines)


def test_several_sets_stand_below_each_other_without_columns_nobody_has() -> None:
    easy = summarised("lexical", questions=QUESTIONS[:1])
    told = texts(picture([easy, replace(easy, name="other")]))
    assert "Tool search on 2 eval sets" in told
    assert {"office", "other", "1 query"} <= set(told)
    assert "AUC" not in told


def test_names_cannot_break_the_picture() -> None:
    hostile = replace(summarised("lexical"), name="<script>&\x00\x1b" + "x" * 99)
    told = texts(picture([hostile]))
    assert f"Tool search on <script>&{'x' * 99} (3 tools)" in told
    many = [
        EvalQuery(
            id=str(n),
            text="email",
            targets=build_targets(["send_email"]),
            subset=f"<{n}>" + "y" * 40,
        )
        for n in range(MAX_ROWS + 5)
    ]
    svg = picture([summarised("lexical", questions=many)])
    labels = [text for text in texts(svg) if re.match(r"<\d+>", text)]
    assert len(labels) == MAX_ROWS - 1
    assert all(len(label) == 26 and label.endswith("…") for label in labels)
