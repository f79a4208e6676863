"""Greedy generation, and the planning, grounding and execution loop with an exact calculator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from tokenizers import Tokenizer

from . import protocol
from .calculator import evaluate_formula, show
from .model import Cache, TinyLlama
from .tokens import EOS, newline_id

_ACTION = re.compile(r"(R\d+) = Calculator\((.*)\)")
MAX_NEW_TOKENS = 160


class Module:
    """A model with its tokenizer."""

    def __init__(self, model: TinyLlama, tokenizer: Tokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.stops = (newline_id(tokenizer), tokenizer.token_to_id(EOS))

    @torch.inference_mode()
    def reply(self, prompt: str) -> str:
        """Generates greedily up to the first newline."""
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        length = len(ids)
        caches = [Cache() for _ in self.model.model.layers]
        block, past = torch.tensor([ids]), 0
        limit = min(length + MAX_NEW_TOKENS, self.model.config.max_position_embeddings)
        while len(ids) < limit:
            keep = torch.zeros_like(block, dtype=torch.bool)
            keep[:, -1] = True
            hidden = self.model.hidden(block, keep, caches, past)
            token = int(self.model.logits(hidden).argmax())
            if token in self.stops:
                break
            past = len(ids)
            ids.append(token)
            block = torch.tensor([[token]])
        return self.tokenizer.decode(ids)[len(self.tokenizer.decode(ids[:length])) :].strip()


@dataclass
class Episode:
    """The replies of an episode, its results and the value of its last variable."""

    plan: list[str] = field(default_factory=list)
    ground: list[str] = field(default_factory=list)
    results: dict[str, Fraction] = field(default_factory=dict)
    answer: Fraction | None = None

    def execute(self, reply: str) -> bool:
        """Runs the actions of a grounder's reply. Returns False if one of them fails."""
        self.ground.append(reply)
        for piece in reply.split("; "):
            action = _ACTION.fullmatch(piece)
            value = evaluate_formula(action[2], self.results) if action else None
            if action is None or value is None:
                self.answer = None
                return False
            self.results[action[1]] = value
            self.answer = value
        return True


def run_iterative(planner: Module, grounder: Module, question: str, rounds: int = 8) -> Episode:
    """Lumos-I: subgoal, actions, result, next subgoal."""
    episode = Episode()
    plan_text, ground_text = protocol.plan_prompt(question), ""
    for number in range(1, rounds + 1):
        reply = planner.reply(plan_text)
        if protocol.STOP.rstrip(".") in reply:
            break
        episode.plan.append(reply)
        if ground_text:
            ground_text += protocol.next_ground_prompt(reply)
        else:
            ground_text = protocol.ground_prompt(question, reply, onetime=False)
        actions = grounder.reply(ground_text)
        ground_text += actions
        if not episode.execute(actions) or episode.answer is None:
            break
        plan_text += reply + protocol.result_prompt(number, show(episode.answer))
    return episode


def run_onetime(planner: Module, grounder: Module, question: str) -> Episode:
    """Lumos-O: all subgoals, then all actions."""
    episode = Episode()
    reply = planner.reply(protocol.plan_prompt(question))
    episode.plan.append(reply)
    episode.execute(grounder.reply(protocol.ground_prompt(question, reply, onetime=True)))
    return episode
