"""Encoders with fewer layers, which learn to say what the whole one says."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.encoder import Encoder, cosine_schedule

SHARPNESS = 20.0


def with_layers(encoder: Encoder, kept: Iterable[int]) -> Encoder:
    """A copy with some of the layers. Only these learn: word pieces are shared by all encoders."""
    small = copy.deepcopy(encoder)
    small.layers = nn.ModuleList(copy.deepcopy(encoder.layers[at]) for at in kept)
    for name, parameter in small.named_parameters():
        parameter.requires_grad_(name.startswith("layers"))
    return small


def learn(
    encoder: Encoder, steps: int, rate: float, loss: Callable[[], Tensor], after_200: Callable[[int], None]
) -> None:
    """So many steps down the loss of what is given next."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(
        [one for one in encoder.parameters() if one.requires_grad], lr=rate, weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine_schedule(step, steps, steps // 20))
    for step in range(1, steps + 1):
        now = loss()
        optimizer.zero_grad()
        now.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            after_200(step)


def unlike(said: Tensor, wanted: Tensor) -> Tensor:
    """How far vectors are from those wanted."""
    return 1 - (said * wanted).sum(1).mean()


def misjudged(said: Tensor, wanted: Tensor) -> Tensor:
    """How differently likenesses share out what there is, row by row."""
    return functional.kl_div(
        functional.log_softmax(SHARPNESS * said, 1), functional.softmax(SHARPNESS * wanted, 1), reduction="batchmean"
    )
