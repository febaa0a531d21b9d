"""Draw what the witness said while the encoder was trained: `python -m training.curve FILE... --out FILE`.

Each FILE is the `curve.jsonl` of one round, in their order. Only points that were measured are drawn;
lines join those of one round. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 24, 48
# The gap between two rounds, in steps.
GAP = 40
LINES = (
    ("need in 5", "need, in five", "#b3261e"),
    ("need first", "need, first", "#e08a84"),
    ("ask in 5", "request, in five", "#1b5e9b"),
    ("agent in 5", "agent, in five", "#2e7d32"),
)


class Point(NamedTuple):
    """A share that was measured after so many steps of a round."""

    step: int
    share: float


def rounds(files: Sequence[Path], figure: str) -> list[list[Point]]:
    """The points of each round, a step once."""
    found = []
    for file in files:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        points = {row["step"]: Point(row["step"], row[figure]) for row in rows}
        found.append([points[step] for step in sorted(points)])
    return found


def svg(files: Sequence[Path]) -> str:
    """The picture."""
    ends = [max(point.step for point in one) for one in rounds(files, LINES[0][0])]
    begins = [sum(ends[:at]) + at * GAP for at in range(len(ends))]
    whole = begins[-1] + ends[-1]

    def x(step: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / whole, 1)

    def y(share: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        "<title>Share of held-back queries answered, by training step</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(2, 11, 2):
        at = y(tenth / 10)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tenth * 10} %</text>')
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        for step in (0, end):
            place = f'x="{x(begin + step)}" y="{HEIGHT - BOTTOM + 18}"'
            parts.append(f'<text {place} text-anchor="middle">{step}</text>')
        middle = x(begin + end / 2)
        parts.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 36}" text-anchor="middle">round {number}, steps</text>')
    for figure, title, colour in LINES:
        found = rounds(files, figure)
        for begin, points in zip(begins, found, strict=True):
            drawn = [(x(begin + point.step), y(point.share)) for point in points]
            path = "L".join(f"{across} {down}" for across, down in drawn)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{across}" cy="{down}" r="3" fill="{colour}"/>' for across, down in drawn]
        # Lines that end near each other would write over each other; a row each does not.
        row = TOP + 16 + 20 * [one[0] for one in LINES].index(figure)
        parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{row}" fill="{colour}">{title}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m training.curve")
    parser.add_argument("files", type=Path, nargs="+", help="curve.jsonl of each round")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.write_text(svg(options.files), encoding="utf-8")


if __name__ == "__main__":
    main()
