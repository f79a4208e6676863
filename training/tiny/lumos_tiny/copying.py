"""Sequences with repeated parts, so that copying is learned for all tokens and not lost while other skills are trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from .examples import IGNORE, Example

#: Tokens that a repeated part is recognised by.
KNOWN = 2


def copying(r: Random, vocabulary: int, seen: list[int]) -> Example:
    """Returns a sequence of 20 to 100 tokens and four to ten parts of it.

    Half of the sequences are a piece of the text `seen`, in which a blank stands between words. The tokens of the others are drawn from all, or from the
    text's; few of them, so that most occur several times. A token of a part is learned if the two before it occur together only once in the sequence.
    """
    length = r.randint(20, 100)
    if r.random() < 0.5 and len(seen) > length:
        start = r.randrange(len(seen) - length)
        ids = seen[start : start + length]
    else:
        few = r.randint(length // 2, 3 * length)
        pool = r.choices(seen, k=few) if r.random() < 0.4 else [r.randrange(2, vocabulary) for _ in range(few)]
        ids = r.choices(pool, k=length)
    pairs = Counter(zip(ids, ids[1:], strict=False))
    whole, targets = list(ids), [IGNORE] * length
    for _ in range(r.randint(4, 10)):
        size = r.randint(4, 16)
        start = r.randrange(length - size)
        part = ids[start : start + size]
        whole += part
        targets += [part[i + 1] if i + 1 >= KNOWN and i + 1 < size and pairs[part[i - 1], part[i]] == 1 else IGNORE for i in range(size)]
    return Example(whole, targets)


def with_copying(examples: Iterator[tuple[str, Example]], share: float, vocabulary: int, r: Random) -> Iterator[tuple[str, Example]]:
    """Yields the named examples, and sequences to copy as a share of them all."""
    for name, example in examples:
        while r.random() < share:
            yield "copying", copying(r, vocabulary, example.ids)
        yield name, example
