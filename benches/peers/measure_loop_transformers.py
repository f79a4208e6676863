"""Measures the original's procedure in transformers on recorded episodes. Prints items per second as one JSON object.

The procedure is that of `eval/gsm/run_eval.py` (`lumos_iterative`) and `eval/utils.py` (`generate_completions`): 16
half-steps, alternating planner and grounder, or fewer if every item is solved earlier. At each half-step, the prompts
of all items grow, including those of solved items. Batches of 16 in the order of the items are padded on the left and
generated until every sequence has a newline. Nothing is cached between half-steps. Replies are forced to the recorded
ones; an item that is solved or given up repeats its last reply. Unlike the original, the model is not loaded again at
every half-step.
"""

import argparse
import gzip
import json
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList, StoppingCriteria

HALF_STEPS = 16
BATCH = 16
STOP = "Yes, I will stop planning"


class Force(LogitsProcessor):
    """Makes the recorded token the most likely one."""

    def __init__(self, replies, start):
        self.replies, self.start = replies, start

    def __call__(self, input_ids, scores):
        index = input_ids.shape[1] - self.start
        tokens = [reply[min(index, len(reply) - 1)] for reply in self.replies]
        scores[torch.arange(len(tokens)), torch.tensor(tokens)] = torch.finfo(scores.dtype).max
        return scores


class KeyWordsCriteria(StoppingCriteria):
    """As in the original: generates until the last token of every sequence is the newline."""

    def __init__(self, stop):
        self.stop = stop

    def __call__(self, input_ids, scores, **kwargs):
        return all(row[-1].item() == self.stop for row in input_ids)


def read(path):
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    return [json.loads(line) for line in opened if line.strip()]


class Episode:
    """Prompts and replies of one item at each half-step of the original."""

    def __init__(self, case):
        self.prompts = case["prompts"]
        self.replies = case["script"]
        self.solved = False
        self.now = {"plan": None, "ground": None}
        self.last = {"plan": "", "ground": ""}

    def prompt(self, role, turn):
        known = self.prompts.get(role) or []
        if turn < len(known):
            self.now[role] = known[turn]
        elif role == "plan":
            # Repeats the last result of the previous prompt.
            told = self.now[role].rsplit("The executed result for Subgoal ", 1)
            result = told[1].split(" is ", 1)[1] if len(told) > 1 else "None. Should we stop planning?\n<|assistant|>\n"
            after = f"\n\n<|user|>\nThe executed result for Subgoal {turn} is {result}"
            self.now[role] += self.last[role].strip() + after
        elif self.now[role] is None:
            task = self.now["plan"].split("Task: ", 1)[1].split("; Initial Environment", 1)[0]
            self.now[role] = f"<|user|>\nTask: {task} \nSubgoal to be grounded: {self.last['plan'].strip()}\n<|assistant|>\n"
        else:
            after = f"\n\n<|user|>\nSubgoal to be grounded: {self.last['plan'].strip()}\n<|assistant|>\n"
            self.now[role] += self.last[role].strip() + after
        return self.now[role]

    def reply(self, role, turn):
        known = self.replies.get(role) or []
        if turn < len(known):
            self.last[role] = known[turn]
        return self.last[role]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--planner", required=True)
    parser.add_argument("--grounder", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--cases", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    load = lambda path: AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    models = {"plan": load(arguments.planner), "ground": load(arguments.grounder)}
    tokenizer = Tokenizer.from_file(arguments.tokenizer)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    newline = encode("\n")[-1]

    def forced(prompt, reply):
        """Returns the tokens of a reply as a model trained on whole conversations generates them."""
        known, whole = encode(prompt), encode(prompt + reply)
        return (whole[len(known) :] if whole[: len(known)] == known else encode(reply)) + [newline]

    episodes = [Episode(case) for case in read(arguments.cases)][: arguments.items]
    rows = {"prefill": 0, "decode": 0}
    start = time.perf_counter()
    half_steps = 0
    for half_step in range(HALF_STEPS):
        if all(episode.solved for episode in episodes):
            break
        half_steps += 1
        role, turn = ("plan", "ground")[half_step % 2], half_step // 2
        for first in range(0, len(episodes), BATCH):
            batch = episodes[first : first + BATCH]
            texts = [episode.prompt(role, turn) for episode in batch]
            prompts = [encode(text) for text in texts]
            replies = [forced(text, episode.reply(role, turn)) for text, episode in zip(texts, batch)]
            longest = max(map(len, prompts))
            ids = torch.tensor([[2] * (longest - len(one)) + one for one in prompts])
            mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
            with torch.inference_mode():
                output = models[role].generate(
                    input_ids=ids,
                    attention_mask=mask,
                    max_new_tokens=512,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=2,
                    logits_processor=LogitsProcessorList([Force(replies, longest)]),
                    stopping_criteria=[KeyWordsCriteria(newline)],
                )
            rows["prefill"] += ids.numel()
            rows["decode"] += (output.shape[1] - longest) * len(batch)
        if role == "plan":
            for episode in episodes:
                episode.solved = episode.solved or STOP in episode.last["plan"]
    seconds = time.perf_counter() - start
    count = len(episodes)
    result = {"items": count, "seconds": seconds, "items_per_second": count / seconds, "half_steps": half_steps}
    print(json.dumps(result | {f"{name}_rows": number for name, number in rows.items()}))


if __name__ == "__main__":
    main()
