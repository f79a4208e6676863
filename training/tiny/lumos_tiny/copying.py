"""Sequences with repeated parts, so that copying is learned for all tokens and not lost while other skills are trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from .examples import IGNORE, Example

#: Tokens that a repeated part is recognised by, at least and at most.
KNOWN = 2
MOST_KNOWN = 8


def copying(r: Random, vocabulary: int, seen: list[int]) -> Example:
    """Returns a sequence of 20 to 100 tokens and four to ten parts of it.

    Half of the sequences are a piece of the text `seen`, in which a blank stands between words. The tokens of the others are drawn from all, or from the
    text's; few of them, so that most occur several times, or of two to six only, such as the digits of an identifier. A token of a part is learned if
    those before it, two to eight, occur together only once in the sequence.
    """
    length = r.randint(20, 100)
    if r.random() < 0.5 and len(seen) > length:
        start = r.randrange(len(seen) - length)
        ids = seen[start : start + length]
    else:
        few = r.randint(2, 6) if r.random() < 0.3 else r.randint(length // 2, 3 * length)
        pool = r.choices(seen, k=few) if r.random() < 0.4 else [r.randrange(2, vocabulary) for _ in range(few)]
        ids = r.choices(pool, k=length)
    known = {size: Counter(zip(*(ids[i:] for i in range(size)), strict=False)) for size in range(KNOWN, MOST_KNOWN + 1)}
    whole, targets = list(ids), [IGNORE] * length
    for _ in range(r.randint(4, 10)):
        size = r.randint(4, 16)
        start = r.randrange(length - size)
        part = ids[start : start + size]
        whole += part
        for end in range(1, size + 1):
            before = tuple(part[max(0, end - MOST_KNOWN) : end])
            certain = KNOWN <= len(before) and end < size and known[len(before)][before] == 1
            targets.append(part[end] if certain else IGNORE)
    return Example(whole, targets)


def with_copying(examples: Iterator[tuple[str, Example]], share: float, vocabulary: int, r: Random) -> Iterator[tuple[str, Example]]:
    """Yields the named examples, and sequences to copy as a share of them all."""
    for name, example in examples:
        while r.random() < share:
            yield "copying", copying(r, vocabulary, example.ids)
        yield name, example
