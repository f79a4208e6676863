"""The tokenizer: byte-level BPE with numbers below 1,000 and the constant protocol texts as single tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .onetime import ONETIME
from .protocol import CONSTANTS

BOS, EOS = "<s>", "</s>"
NEWLINE = "\n"
DIGITS = re.compile(r"\d")
#: Groups of up to three digits from the right, so that `1,234` and `1234` have the same groups.
GROUPS = r"\d{1,3}(?=(?:\d{3})*(?!\d))"


def train_tokenizer(texts: Iterable[str], vocab_size: int, constants: Sequence[str] = (*CONSTANTS, ONETIME)) -> Tokenizer:
    """Learns the merges from texts. Adds the constants and all groups of digits, each as one token, beside `vocab_size`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(GROUPS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((DIGITS.sub("", text) for text in texts), trainer)
    tokenizer = _with_numbers(tokenizer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in constants])
    return tokenizer


def _with_numbers(tokenizer: Tokenizer) -> Tokenizer:
    """Adds all groups of two and three digits."""
    content = json.loads(tokenizer.to_str())
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    for size in (2, 3):
        for number in range(10**size):
            text = f"{number:0{size}}"
            vocabulary[text] = len(vocabulary)
            # Either pair of its digits may have been merged first.
            merges += [[text[:-1], text[-1]]] if size == 2 else [[text[:-1], text[-1]], [text[0], text[1:]]]
    return Tokenizer.from_str(json.dumps(content))


def newline_id(tokenizer: Tokenizer) -> int:
    """Returns the id of the token that ends a reply."""
    return tokenizer.encode(NEWLINE, add_special_tokens=False).ids[-1]
