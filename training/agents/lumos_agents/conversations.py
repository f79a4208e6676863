"""Conversations to train on, read from the samples of runs or from exported annotations, and their token sequences.

A conversation is the sequence of prompts and replies of one model in one episode. Each later prompt extends the one
before, so a conversation is one token sequence, and only the replies count in the loss.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .texts import ASSISTANT, NEXT_USER, USER  # (makes lumos_tiny importable)
from lumos_tiny.examples import IGNORE, Example
from tokenizers import Tokenizer

NEWLINE, END = "\n", "</s>"


@dataclass
class Conversation:
    """What one model read and wrote: texts appended to its prompt, each with the reply."""

    task: str
    role: str
    formulation: str
    turns: list[tuple[str, str]]
    stop: str = NEWLINE
    # By the index of the turn: the reply to learn, where the next prompt continues with another text than the reply.
    learned: dict[str, str] = field(default_factory=dict)
    # Indices of turns whose reply is not learned.
    skipped: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(prompt + reply for prompt, reply in self.turns)


def _chat(messages: list[dict[str, str]]) -> str:
    """Returns messages as a model without a chat template receives them."""
    return "".join(f"<|{m['role']}|>\n{m['content'].strip()}\n" for m in messages) + "<|assistant|>\n"


def _replaced(conversation: Conversation, prompt: str) -> bool:
    """Puts the text of a planner's next prompt in the place of the last reply, if the product wrote it with another verb."""
    shown, reply = conversation.text, conversation.turns[-1][1]
    start = shown[: len(shown) - len(reply)]
    if conversation.role != "planner" or not prompt.startswith(start):
        return False
    text = prompt[len(start) :].split("\n\n<|user|>\n", 1)[0]
    if text.rsplit(" ", 1)[-1] != reply.rsplit(" ", 1)[-1]:
        return False
    conversation.learned[str(len(conversation.turns) - 1)] = reply
    conversation.turns[-1] = conversation.turns[-1][0], text
    return True


def of_trajectory(task: str, formulation: str, steps: list[dict]) -> Iterator[Conversation]:
    """Yields the conversations of an episode. A prompt that does not extend the one before starts another conversation.

    The planner's replies whose actions were refused are not learned.
    """
    open_: dict[str, tuple[Conversation, str]] = {}
    for step in steps:
        if step["step"] == "generate":
            role, prompt, reply = step["role"], step["prompt"], step["reply"].strip()
            known = open_.get(role)
            if known and (prompt.startswith(known[1]) or _replaced(known[0], prompt)):
                conversation = known[0]
                before = conversation.text
            else:
                if known:
                    yield known[0]
                conversation, before = Conversation(task, role, formulation, []), ""
            conversation.turns.append((prompt[len(before) :], reply))
            open_[role] = conversation, prompt + reply
        elif step["step"] == "action" and "planner" in open_ and isinstance(step["observation"], dict) and "refused" in step["observation"]:
            planner = open_["planner"][0]
            planner.skipped.append(len(planner.turns) - 1)
        elif step["step"] == "call" and step["call"].get("tool") == "chat":
            prompt, reply = _chat(step["call"]["messages"]), step["reply"]["reply"]["text"].strip()
            yield Conversation(task, step["call"]["role"], formulation, [(prompt, reply)], END)
    for conversation, _ in open_.values():
        yield conversation


def of_run(folder: Path, metrics: list[str], least: float = 1.0) -> Iterator[Conversation]:
    """Yields the conversations of the episodes in a run's samples of which one of the metrics is at least `least`."""
    for path in sorted(folder.glob("samples_*.jsonl")):
        with path.open() as file:
            for line in file:
                sample = json.loads(line)
                if any((sample.get(metric) or 0) >= least for metric in metrics):
                    question = sample["arguments"]["gen_args_0"]["arg_0"]
                    yield from of_trajectory(question, sample["formulation"], json.loads(sample["trajectory"]))


def of_annotations(path: Path, examples: dict[str, str]) -> Iterator[Conversation]:
    """Yields the conversations of a file of `lumos export --to annotations`.

    The export omits the worked examples of prompts; `examples` has that of each role. The planner's replies whose actions failed are
    not learned.
    """
    known = re.fullmatch(r"lumos_.+_(plan|ground)_(iterative|onetime)\.jsonl", path.name)
    if not known:
        raise ValueError(f"{path}: expected a file such as lumos_<domain>_plan_iterative.jsonl")
    role = {"plan": "planner", "ground": "grounder"}[known[1]]
    with path.open() as file:
        for line in file:
            texts = [message["content"] for message in json.loads(line)["messages"]]
            asked, replies = texts[::2], texts[1::2]
            heads = [examples.get(role, "") + USER, *[NEXT_USER] * (len(asked) - 1)]
            turns = [(head + text + ASSISTANT, reply) for head, text, reply in zip(heads, asked, replies, strict=True)]
            failed = [turn for turn, text in enumerate(asked[1:]) if role == "planner" and " = Error" in text]
            task = re.split(r"; Initial Environment Description:| ?\nSubgoal", asked[0].split("Task: ", 1)[-1])[0]
            yield Conversation(task, role, known[2], turns, skipped=failed)


def write(conversations: Iterator[Conversation], path: Path) -> int:
    """Writes conversations as JSON lines. Returns how many."""
    count = 0
    with path.open("w") as file:
        for conversation in conversations:
            file.write(json.dumps(asdict(conversation)) + "\n")
            count += 1
    return count


def read(path: Path) -> list[Conversation]:
    """Reads a file of conversations, which may be compressed (`.xz`)."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open() as file:
        rows = [Conversation(**json.loads(line)) for line in file]
    return [Conversation(r.task, r.role, r.formulation, [tuple(turn) for turn in r.turns], r.stop, r.learned, r.skipped) for r in rows]


class Misaligned(ValueError):
    """A reply begins or ends within a token."""


def encode(tokenizer: Tokenizer, conversation: Conversation) -> Example:
    """Encodes a conversation as one sequence, as the product encodes the whole text.

    After a reply, the target is the token that ends it, while the sequence continues with the next turn. A reply in whose place the
    sequence has another text is learned token by token, if both have as many.
    """
    stop = tokenizer.encode(conversation.stop, add_special_tokens=False).ids[-1]
    text = conversation.text
    encoding = tokenizer.encode(text, add_special_tokens=False)
    starts = {start: index for index, (start, end) in enumerate(encoding.offsets) if end > start}
    starts[len(text)] = len(encoding.ids)
    targets = [IGNORE] * len(encoding.ids)
    position = 0
    for turn, (prompt, reply) in enumerate(conversation.turns):
        first, last = position + len(prompt), position + len(prompt) + len(reply)
        position = last
        if first not in starts or last not in starts:
            raise Misaligned(f"{conversation.task!r}: {reply!r} does not begin and end with a token")
        begin, end = starts[first], starts[last]
        if turn in conversation.skipped:
            continue
        wanted = encoding.ids[begin:end]
        if str(turn) in conversation.learned:
            wanted = tokenizer.encode(conversation.learned[str(turn)], add_special_tokens=False).ids
            if len(wanted) != end - begin:
                continue
        targets[begin - 1 : end - 1] = wanted
        targets[end - 1] = stop
    return Example(encoding.ids, targets)
