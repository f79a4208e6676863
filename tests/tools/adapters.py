"""Compares adapters merged by lumos with peft: greedy tokens, and logits after the prompt, all in float32.

    tests/tools/adapters.sh [path of lumos] [folders of Llamas …]

The base models are a small random Llama that this program creates, and the given folders. Each is tested with several
kinds of adapters. peft computes with the adapter separate from its base ("separate"), merged into the base in float32
("merged"), and merged in the stored type of the base, which only shows the effect of rounding the merged weights. With
`--golden DIR` instead of folders, the small Llama, its adapters and peft's results are written to DIR in the format of
the engine's tests.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

TOKENS = 32
# Minimum difference of the two best logits for which the order of float32 sums does not change the best token.
GAP = 0.002
PROMPTS = [
    "Ann has 3 apples and buys 4 more.",
    "Subgoal 1: find the director",
    "a",
    "é 漢字 🙂 and a longer text, so that positions matter: 0123456789 0123456789",
]
ADAPTERS = {
    "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(
        r=4,
        lora_alpha=6,
        target_modules="all-linear",
        use_rslora=True,
        rank_pattern={"down_proj": 3, "layers.1.self_attn.q_proj": 8},
        alpha_pattern={r"layers\.0\.mlp\..*": 3, "k_proj": 5},
    ),
}


def byte_tokenizer():
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(words[:3])
    return tokenizer


def small_base(folder):
    """A random Llama with grouped heads and tied embeddings, stored in bfloat16."""
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=259, max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.25,
        bos_token_id=1, eos_token_id=2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    byte_tokenizer().save(str(folder / "tokenizer.json"))


def load(folder, dtype=torch.float32):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def write_adapter(base, kind, folder):
    """Writes an adapter with two random factors, as after training."""
    torch.manual_seed(2)
    model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **ADAPTERS[kind]))
    model.peft_config["default"].base_model_name_or_path = "../base"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)


@torch.no_grad()
def greedy(model, ids):
    """Returns the logits after the prompt, the tokens, and the number of tokens before the first unclear margin."""
    sequence, tokens, safe, first = list(ids), [], None, None
    for index in range(TOKENS):
        logits = model(torch.tensor([sequence]), use_cache=False).logits[0, -1].float()
        first = logits if first is None else first
        best = torch.topk(logits, 2)
        if safe is None and best.values[0] - best.values[1] < GAP:
            safe = index
        tokens.append(int(best.indices[0]))
        sequence.append(tokens[-1])
    return first, tokens, TOKENS if safe is None else safe


def complete(lumos, model, logits):
    """Returns lumos's reply to every prompt."""
    command = [lumos, "complete", "--model", model, "--jsonl", "--stop", "", "--ignore-eos"]
    command += ["--max-new-tokens", str(TOKENS), "--logits", str(logits), "--threads", "1"]
    lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(lumos, base, kind, folder):
    replies = complete(lumos, f"candle:{base}+{folder}", 100_000)
    # Without the name of the base, which is in the configuration of the adapter.
    assert [reply["tokens"] for reply in complete(lumos, f"candle:{folder}", 1)] == [
        reply["tokens"] for reply in replies
    ]
    stored = json.loads((Path(base) / "config.json").read_text())
    stored = getattr(torch, stored.get("dtype") or stored.get("torch_dtype") or "float32")
    wrapped = lambda dtype: PeftModel.from_pretrained(load(base, dtype), folder).eval()
    kinds = {
        "separate": wrapped(torch.float32),
        "merged": wrapped(torch.float32).merge_and_unload(),
        f"merged in {str(stored).removeprefix('torch.')}": wrapped(stored).merge_and_unload().float(),
    }
    for name, model in kinds.items():
        equal, difference = 0, 0.0
        for reply in replies:
            first, tokens, safe = greedy(model, reply["prompt_tokens"])
            equal += tokens == reply["tokens"]
            ours = torch.empty_like(first)
            for index, logit in reply["logits"]:
                ours[index] = logit
            difference = max(difference, float((first - ours).abs().max()))
            if name in ("separate", "merged"):
                assert tokens[:safe] == reply["tokens"][:safe], (base, kind, name)
                assert difference < 1e-3, (base, kind, name, difference)
        print(f"{Path(base).name}, {kind}, {name}: {equal} of {len(replies)} sequences equal, logits within {difference:.1e}")


def golden(target):
    small_base(target / "base")
    tokenizer = Tokenizer.from_file(str(target / "base/tokenizer.json"))
    cases = []
    for kind in ADAPTERS:
        write_adapter(target / "base", kind, target / kind)
        model = PeftModel.from_pretrained(load(target / "base"), target / kind).eval()
        for prompt in PROMPTS:
            ids = tokenizer.encode(prompt).ids
            first, tokens, safe = greedy(model, ids)
            top = torch.topk(first, 8)
            logits = [[int(index), round(float(logit), 6)] for logit, index in zip(top.values, top.indices)]
            case = dict(adapter=kind, prompt=prompt, ids=ids, greedy=tokens, safe_tokens=safe, first_top8=logits)
            cases.append(json.dumps(case))
    (target / "cases.jsonl").write_text("".join(case + "\n" for case in cases))


def main():
    if sys.argv[2:3] == ["--golden"]:
        return golden(Path(sys.argv[3]))
    lumos = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "base"
        small_base(small)
        for index, base in enumerate([small] + [Path(name).resolve() for name in sys.argv[2:]]):
            for kind in ADAPTERS:
                adapter = Path(folder) / f"{index}-{kind}"
                write_adapter(base, kind, adapter)
                if base != small:
                    config = json.loads((adapter / "adapter_config.json").read_text())
                    config["base_model_name_or_path"] = str(base)
                    (adapter / "adapter_config.json").write_text(json.dumps(config))
                compare(lumos, base, kind, adapter)
    print(f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")


main()
