"""Invented words, names, codes and numbers, so that a model has to copy them."""

from __future__ import annotations

from random import Random

ONSETS = "b br c ch cl cr d dr f fl fr g gl gr h j k kl kn l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str t th tr v w wh x y z".split()
VOWELS = "a a a e e e i i o o u ai au ay ea ee ei ie io oa oo ou y".split()
CODAS = ["", "", "", "", *"b ck d f g k l ll lm ld m mp n nd ng nk nt p r rd rk rm rn rt s sh ss st t th v w x z".split()]


def word(r: Random, least: int = 1, most: int = 3) -> str:
    """Returns an invented word of `least` to `most` syllables in lower case."""
    syllables = r.randint(least, most)
    return "".join(r.choice(ONSETS) + r.choice(VOWELS) + (r.choice(CODAS) if i + 1 == syllables else r.choice(("", "", "n", "r", "l", "s"))) for i in range(syllables))


def code(r: Random, length: int) -> str:
    """Returns a code of digits and capital letters."""
    return "".join(r.choice("0123456789" if r.random() < 0.45 else "ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(length))


def number(r: Random, digits: int) -> str:
    """Returns a number of this many digits."""
    return str(r.randrange(10 ** (digits - 1), 10**digits))
