"""The texts that the prompts of all agents share, and those that each domain encodes as one token."""

from __future__ import annotations

from importlib import import_module

from lumos_tiny.onetime import ONETIME
from lumos_tiny.protocol import PLAN_HEAD

USER = "<|user|>\n"
ASSISTANT = "\n<|assistant|>\n"
NEXT_USER = "\n\n<|user|>\n"
PLAN = "Please provide a reasonable subgoal-based plan to solve the given task.\n"
KEEP = "No, I will keep planning. "
STOP = "Yes, I will stop planning."
RESULT = NEXT_USER + "The executed result for Subgoal "
ASK_STOP = ". Should we stop planning?" + ASSISTANT

SHARED = [USER, ASSISTANT, NEXT_USER, KEEP, STOP, RESULT, ASK_STOP, "Subgoal "]
DOMAINS = ("qa", "sql", "shop", "web")


def domain(name: str):  # noqa: ANN201
    """Returns the module of a domain.

    It has `CONSTANTS` (texts that become one token each), `generate(split, seed, count, folder)`, which writes tasks and
    their data in the product's formats, and `Oracle(folder, formulation)`, which replies to prompts about them. `EXAMPLES` is
    the worked example at the beginning of the prompts of each role, if there is one that annotations omit.
    """
    return import_module(f"lumos_agents.{name}")


def constants(name: str) -> list[str]:
    """Returns the texts that the tokenizer of one or several domains (`shop+web`) encodes as one token each, longest first."""
    texts = {text for part in name.split("+") for text in domain(part).CONSTANTS} | set(SHARED)
    if PLAN_HEAD in texts:
        texts.add(ONETIME)
    return sorted(texts, key=lambda text: (-len(text), text))
