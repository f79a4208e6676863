"""Endless batches of examples of similar length."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import torch
from torch import Tensor

from .examples import IGNORE, Example

POOL = 512
#: Widths are multiples of this, because every new shape costs time and memory in the matrix kernels.
STEP = 32


def _stack(examples: list[Example]) -> tuple[Tensor, Tensor]:
    width = -(-max(len(example.ids) for example in examples) // STEP) * STEP
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    targets = torch.full((len(examples), width), IGNORE, dtype=torch.long)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        targets[row, : len(example.targets)] = torch.tensor(example.targets)
    return ids, targets


def batched(examples: Iterator[Example], tokens: int, r: Random) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields batches of about `tokens` tokens. Examples of similar length share a batch."""
    while True:
        pool = sorted(islice(examples, POOL), key=lambda example: len(example.ids))
        if not pool:
            return
        groups: list[list[Example]] = [[]]
        for example in pool:
            if len(groups[-1]) and (len(groups[-1]) + 1) * len(example.ids) > tokens:
                groups.append([])
            groups[-1].append(example)
        r.shuffle(groups)
        for group in groups:
            yield _stack(group)
