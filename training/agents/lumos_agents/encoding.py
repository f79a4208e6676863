"""Conversations as token sequences, encoded by several processes, with the kinds that training shares and checks refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from zlib import crc32

from tokenizers import Tokenizer

from .conversations import Conversation, Misaligned, encode
from lumos_tiny.copying import with_copying
from lumos_tiny.examples import Example
from lumos_tiny.onetime import marked
from lumos_tiny.store import Store, produced

#: Conversations that a process encodes at a time.
CHUNK = 1000


def groups(conversation: Conversation) -> tuple[str, ...]:
    """Returns what `--keep` may call a conversation: its role, the planner's formulation, and for the QA tool's whether it has no answer or is one from earlier answers."""
    prompt, reply = conversation.turns[-1]
    if conversation.role == "planner":
        return ("planner", f"planner-{conversation.formulation}")
    if conversation.role != "qa":
        return (conversation.role,)
    return ("qa", "unanswered" if reply == "No answer" else "read" if "Evidence 1: " in prompt else "concluded")


def encoded(tokenizer: Tokenizer, conversations: list[Conversation], longest: int) -> list[tuple[str, Example]]:
    """Encodes conversations that are aligned and not too long, each with its role, and the formulation of the planner's."""
    examples = []
    for conversation in conversations:
        try:
            example = encode(tokenizer, conversation)
        except Misaligned as error:
            if not examples:
                print(error, flush=True)
            continue
        if len(example.ids) > longest:
            continue
        if conversation.role == "planner" and conversation.formulation == "onetime":
            example = replace(example, ids=marked(tokenizer, example.ids))
        examples.append((groups(conversation)[-1], example))
    return examples


def describe(names: Iterable[str], tokens: int, conversations: int) -> None:
    """Prints how many conversations there are of each kind, and how many were left out."""
    kinds = Counter(names)
    kept = sum(kinds.values()) - kinds["copying"]
    print(f"{kept} conversations, {tokens / max(1, kinds.total()):.0f} tokens on average; left out, long or misaligned: {conversations - kept}; {dict(kinds)}", flush=True)


def stored(tokenizer: Tokenizer, conversations: list[Conversation], longest: int, copying: float, seed: int, workers: int) -> Store:
    """Encodes conversations in several processes, and adds sequences to copy as the share `copying` of them all."""

    def chunk(number: int) -> Store:
        own = conversations[number * CHUNK : (number + 1) * CHUNK]
        examples: Iterator[tuple[str, Example]] = iter(encoded(tokenizer, own, longest))
        if copying:
            examples = with_copying(examples, copying, tokenizer.get_vocab_size(), Random(f"{seed}:{number}"))
        return Store.of(list(examples))

    store = Store.joined(produced(chunk, workers, -(-len(conversations) // CHUNK)))
    describe(map(str, store.names), len(store.ids), len(conversations))
    return store


def is_held_back(conversation: Conversation, share: float) -> bool:
    """Whether a share of all tasks includes that of a conversation."""
    return crc32(conversation.task.encode()) % 10_000 < share * 10_000
