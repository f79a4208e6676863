"""Tells the planner's formulations apart where their prompts are equal.

The first prompt of a planner is the same in both formulations, but the replies differ: one subgoal, or all of them. One model can serve both
if the token at the beginning of the prompt differs. A model folder therefore has two tokenizers for the same weights: in `tokenizer.json`, the
text at the beginning of a planner's prompt is one token, and in `tokenizer-onetime.json` another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenizers import Tokenizer

from .protocol import PLAN_HEAD

#: The text that stands for the other token. No prompt contains it.
ONETIME = "<|one-time|>"


def marked(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Returns the ids of a one-time planner's conversation with the other token, if the tokenizer has one."""
    plain, other = tokenizer.token_to_id(PLAN_HEAD), tokenizer.token_to_id(ONETIME)
    if other is None or plain is None:
        return list(ids)
    return [other if token == plain else token for token in ids]


def onetime_tokenizer(tokenizer: Tokenizer) -> Tokenizer | None:
    """Returns the tokenizer for prompts of the one-time planner, if it differs from that of the other prompts."""
    if tokenizer.token_to_id(ONETIME) is None or tokenizer.token_to_id(PLAN_HEAD) is None:
        return None
    content = json.loads(tokenizer.to_str())
    swapped = {PLAN_HEAD: ONETIME, ONETIME: PLAN_HEAD}
    # The texts are exchanged, not the ids, because added tokens are read in the order of their ids.
    for token in content["added_tokens"]:
        token["content"] = swapped.get(token["content"], token["content"])
    return Tokenizer.from_str(json.dumps(content))
