"""Sequences of random tokens that contain themselves again, to learn copying before anything else."""

from __future__ import annotations

from random import Random

from . import texts  # noqa: F401  (makes lumos_tiny importable)
from lumos_tiny.examples import IGNORE, Example


def copying(vocabulary: int, r: Random) -> Example:
    """Returns a sequence of pieces, each of which occurs earlier: the second occurrence is the target after its first token."""
    length = r.randint(20, 90)
    first = [r.randrange(3, vocabulary) for _ in range(length)]
    ids, targets = list(first), [IGNORE] * length
    while len(ids) < 2 * length:
        start = r.randrange(length - 3)
        piece = first[start : start + r.randint(3, 12)]
        ids += piece
        targets += piece[1:] + [IGNORE]
    return Example(ids, targets)
