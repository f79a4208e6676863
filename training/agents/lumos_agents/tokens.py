"""The tokenizer: byte-level BPE over words, in which blanks, digits and marks are tokens of their own.

Copying is the main skill of these models. A word therefore has the same tokens wherever it occurs: after a blank, after a bracket or
within a name such as `song_name` or `SongName`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import texts  # noqa: F401  (makes lumos_tiny importable)
from lumos_tiny.tokens import BOS, EOS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

#: As `WORDS`, with the `s` at the end of a word as a token, so that a plural has the tokens of its singular.
SINGULARS = r"\s|\p{Lu}?\p{Ll}+?(?=s(?!\p{Ll}))|s(?!\p{Ll})|\p{Lu}?\p{Ll}+|\p{Lu}+|\p{N}|[^\s\p{L}\p{N}]+"
WORDS = r"\s|\p{Lu}?\p{Ll}+|\p{Lu}+|\p{N}|[^\s\p{L}\p{N}]+"


def split_words(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Splits texts into the words of a pattern, and these into bytes."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def train_tokenizer(corpus: Iterable[str], vocab_size: int, constants: Sequence[str], folded: bool = False) -> Tokenizer:
    """Learns the merges from texts, `folded` as by [`fold_case`], and adds the constants, each as one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase() if folded else None
    tokenizer.pre_tokenizer = split_words(SINGULARS if folded else WORDS)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(constants),
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    def words() -> Iterable[str]:
        for text in corpus:
            for constant in constants:
                text = text.replace(constant, " ")
            yield text

    tokenizer.train_from_iterator(words(), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in constants])
    return tokenizer


def fold_case(tokenizer: Tokenizer) -> None:
    """Makes a tokenizer read all text but its constants in lower case, and plurals as singulars followed by `s`.

    For agents whose tools ignore case, such as databases: the table `Bank`, the column `bank` and the word `banks` then begin with the same
    token. `R` remains, because variables begin with it.
    """
    tokenizer.add_tokens([AddedToken("R", normalized=False, special=False)])
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split_words(SINGULARS)
