"""The tokenizer: byte-level BPE with single digits, and the constant protocol texts as single tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .protocol import CONSTANTS

BOS, EOS = "<s>", "</s>"
NEWLINE = "\n"


def train_tokenizer(texts: Iterable[str], vocab_size: int, constants: Sequence[str] = CONSTANTS) -> Tokenizer:
    """Learns the merges from texts and adds the constants, each as one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(constants),
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in constants])
    return tokenizer


def newline_id(tokenizer: Tokenizer) -> int:
    """Returns the id of the token that ends a reply."""
    return tokenizer.encode(NEWLINE, add_special_tokens=False).ids[-1]
