"""Compares `lumos complete` with llama.cpp on the same GGUF files: ids of texts, logits after the prompt, greedy tokens.

    tests/tools/llama-cpp.sh [path of lumos]

The files are written like those of llama.cpp's convert_hf_to_gguf.py, and quantized by llama.cpp. The models are the
built-in ones. With LUMOS_SHARED set, they also include the reference models of the engine's tests and of other families, and random weights
of 110 million values with the tokenizer of Llama 2 from that folder. In F32 and F16, greedy tokens must be equal,
except where llama.cpp's two best logits differ by less than its numerical error.
"""

import ctypes
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "peers"))
from gguf_layout import architecture_of, converted, frequency_factors, write_parameters  # noqa: E402

NEW_TOKENS = 48
# Numerical error of llama.cpp by type. For F16, it also rounds activations to 16 bits.
CLOSE = {"F32": 2e-3, "F16": 5e-2}
QUANTIZED = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
}
# Reference models of other families, except Mistral, whose window the files do not contain.
FAMILIES = ["mixtral", "qwen2", "qwen2-yarn", "qwen3", "qwen3-moe", "gemma2", "gemma3", "phi3", "olmo2", "granite"]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def tensors(folder):
    """Yields the tensors of all safetensors files of a folder as float32."""
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        for name, about in header.items():
            if name == "__metadata__":
                continue
            start, end = (8 + length + offset for offset in about["data_offsets"])
            raw = data[start:end]
            if about["dtype"] == "BF16":
                values = (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
            else:
                values = numpy.frombuffer(raw, {"F32": numpy.float32, "F16": numpy.float16}[about["dtype"]])
            yield name, values.astype(numpy.float32).reshape(about["shape"])


def published_pieces(path):
    """Yields the texts, scores and types of a tokenizer.model (sentencepiece_model.proto)."""

    def number(data, at):
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at

    def fields(data):
        at = 0
        while at < len(data):
            tag, at = number(data, at)
            if tag & 7 == 0:
                value, at = number(data, at)
            elif tag & 7 == 5:
                value, at = data[at : at + 4], at + 4
            else:
                length, at = number(data, at)
                value, at = data[at : at + length], at + length
            yield tag >> 3, value

    for field, piece in fields(path.read_bytes()):
        if field == 1:
            piece = dict(fields(piece))
            yield piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, NORMAL)


def sentencepiece_of_json(tokenizer):
    """Yields the pieces of a SentencePiece tokenizer.json. A score is the negative rank of the piece's first merge."""
    scores = {}
    for rank, (left, right) in enumerate(tokenizer["model"]["merges"]):
        scores.setdefault(left + right, -float(rank))
    for piece in tokenizer["model"]["vocab"]:
        kind = NORMAL
        if piece == "<unk>":
            kind = UNKNOWN
        elif piece in ("<s>", "</s>"):
            kind = CONTROL
        elif len(piece) == 6 and piece.startswith("<0x"):
            kind = BYTE
        yield piece, scores.get(piece, -1e6), kind


def write_vocabulary(writer, tokenizer):
    if isinstance(tokenizer, Path):
        pieces = list(published_pieces(tokenizer))
    else:
        pieces = list(sentencepiece_of_json(tokenizer)) if tokenizer["model"].get("byte_fallback") else None
    if pieces is not None:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        texts, scores, kinds = zip(*pieces)
        writer.add_token_list(list(texts))
        writer.add_token_scores(list(scores))
        writer.add_token_types(list(kinds))
        return
    # The words of GPT-2, also with single digits, by llama.cpp's names.
    splitter = tokenizer["pre_tokenizer"]
    steps = tuple(step["type"] for step in splitter.get("pretokenizers", [splitter]))
    pre = {("ByteLevel",): "gpt-2", ("Digits", "ByteLevel"): "smollm"}[steps]
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    kinds = dict.fromkeys(texts, NORMAL)
    for added in tokenizer["added_tokens"]:
        texts[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([texts[number] for number in sorted(texts)])
    writer.add_token_types([kinds[number] for number in sorted(texts)])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])


def write(folder, tokenizer, target, kind):
    """Writes the model of a Hugging Face folder as GGUF, with matrices of a given type."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, architecture_of(config))
    write_parameters(writer, config)
    write_vocabulary(writer, tokenizer)
    writer.add_bos_token_id(config.get("bos_token_id", 1))
    writer.add_eos_token_id(config.get("eos_token_id", 2))
    for name, factors in frequency_factors(config):
        writer.add_tensor(name, factors)
    for name, tensor in converted(config, tensors(folder), numpy.stack):
        if tensor.ndim > 1 and kind == "F16" and ".ffn_gate_inp." not in name:
            tensor = tensor.astype(numpy.float16)
        writer.add_tensor(name, numpy.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@llama_cpp.llama_log_callback
def quiet(level, text, data):
    """Discards log messages, because llama.cpp logs every tensor."""


def quantize(source, target, kind):
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = QUANTIZED[kind]
    parameters.nthread = 2
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters))
    assert status == 0, (target, status)


def lumos_complete(lumos, path, prompts, vocabulary, tokens=NEW_TOKENS):
    command = [lumos, "complete", "--model", f"candle:{path}", "--jsonl", "--stop", "", "--ignore-eos"]
    command += ["--max-new-tokens", str(tokens), "--logits", str(vocabulary)]
    lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class LlamaCpp:
    """llama.cpp with float32 keys and values, one sequence at a time."""

    def __init__(self, path, longest):
        self.model = llama_cpp.Llama(
            str(path),
            n_ctx=longest,
            n_batch=512,
            # Several threads would spin while they wait for each other.
            n_threads=1,
            n_threads_batch=1,
            type_k=0,
            type_v=0,
            flash_attn=False,
            verbose=False,
        )

    def tokenize(self, text):
        return self.model.tokenize(text.encode(), add_bos=False, special=True)

    def logits(self):
        values = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return numpy.ctypeslib.as_array(values, shape=(self.model.n_vocab(),)).copy()

    def greedy(self, prompt, count=NEW_TOKENS):
        """Returns the logits after the prompt, the tokens, and the difference of the two best logits at each."""
        self.model.reset()
        self.model.eval(prompt)
        first, tokens, gaps = self.logits(), [], []
        logits = first
        for _ in range(count):
            best = int(logits.argmax())
            others = numpy.delete(logits, best)
            tokens.append(best)
            gaps.append(float(logits[best] - others.max()))
            self.model.eval([best])
            logits = self.logits()
        return first, tokens, gaps


def distance(logits, others):
    """Returns the root mean square of the differences relative to that of the other logits."""
    return float((((logits - others) ** 2).sum() / (others**2).sum()) ** 0.5)


def compare(lumos, name, path, kind, prompts, exact):
    """Prints a row. Returns the number of prompts with equal ids, and llama.cpp's logits. `exact`: logits of F32."""
    vocabulary = gguf_vocabulary(path)
    ours = lumos_complete(lumos, path, prompts, vocabulary)
    longest = max(len(one["prompt_tokens"]) for one in ours) + NEW_TOKENS + 8
    model = LlamaCpp(path, longest)
    alike = equal = prefix = 0
    closest = 0.0
    logits, theirs = (numpy.empty((len(prompts), vocabulary), numpy.float32) for _ in range(2))
    for at, (prompt, one) in enumerate(zip(prompts, ours)):
        alike += model.tokenize(prompt) == one["prompt_tokens"]
        theirs[at], tokens, gaps = model.greedy(one["prompt_tokens"])
        ids, values = zip(*one["logits"])
        logits[at, list(ids)] = values
        different = [index for index, pair in enumerate(zip(tokens, one["tokens"])) if pair[0] != pair[1]]
        equal += not different
        prefix += different[0] if different else NEW_TOKENS
        if different:
            gap = gaps[different[0]]
            closest = max(closest, gap)
            assert kind not in CLOSE or gap < CLOSE[kind], (name, kind, prompt, different[0], gap)
    exact = theirs if exact is None else exact
    row = [name, kind, f"{alike}/{len(prompts)}", f"{equal}/{len(prompts)}"]
    row += [f"{prefix / (NEW_TOKENS * len(prompts)):.0%}", f"{closest:.2g}", f"{numpy.abs(logits - theirs).max():.2g}"]
    row += [f"{value:.2g}" for value in (distance(logits, theirs), distance(logits, exact), distance(theirs, exact))]
    print(f"| {' | '.join(row)} |", flush=True)
    return alike, theirs


def gguf_vocabulary(path):
    return len(gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens").data)


def shared_models(shared, lumos, folder):
    golden = shared / "golden" / "engine"
    for name in ("llama-mha", "llama-gqa-tied", "llama3-rope"):
        cases = [json.loads(line) for line in gzip.open(golden / name / "cases.jsonl.gz", "rt")]
        tokenizer = json.loads((golden / name / "tokenizer.json").read_text())
        yield name, golden / name, tokenizer, [case["prompt"] for case in cases][:12]
    for name in FAMILIES:
        source = shared / "golden" / "families" / name
        cases = [json.loads(line) for line in gzip.open(source / "cases.jsonl.gz", "rt")]
        tokenizer = json.loads((source / "tokenizer.json").read_text())
        yield name, source, tokenizer, [case["prompt"] for case in cases][:12]
    weights = folder / "110m"
    command = [lumos, "bench", "engine", "--random-weights", "110m", "--dtype", "f16", "--save-weights", str(weights)]
    subprocess.run(command, check=True, capture_output=True)
    questions = (shared / "data" / "gsm8k" / "test.jsonl").read_text().splitlines()[:8]
    prompts = [json.loads(line)["question"] for line in questions]
    yield "110m, random", weights, shared / "data" / "tokenizers" / "llama2" / "tokenizer.model", prompts


def shipped_models():
    samples = Path("benchmarks/samples/gsm8k.jsonl").read_text().splitlines()[:12]
    layout = (
        "<|user|>\nPlease provide a reasonable subgoal-based plan to solve the given task.\nTask: {}; "
        "Initial Environment Description: None.\n<|assistant|>\n"
    )
    prompts = [layout.format(json.loads(line)["question"]) for line in samples]
    for name in ("maths", "web"):
        folder = Path("models/assets/tiny") / name
        yield f"tiny {name}", folder, json.loads((folder / "tokenizer.json").read_text()), prompts


def main():
    lumos = sys.argv[1]
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    shared = os.environ.get("LUMOS_SHARED")
    print(f"llama.cpp of llama-cpp-python {llama_cpp.__version__}, {NEW_TOKENS} tokens after each prompt\n")
    columns = [
        "model",
        "file",
        "prompts with equal ids",
        "equal replies",
        "tokens before a difference",
        "llama.cpp's two best logits there, largest difference",
        "largest difference of a logit",
        "relative difference of logits",
        "lumos, distance from F32",
        "llama.cpp, distance from F32",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        models = list(shipped_models())
        if shared:
            models += shared_models(Path(shared), lumos, folder)
        else:
            print("LUMOS_SHARED is not set: only the built-in models are compared", file=sys.stderr)
        for name, source, tokenizer, prompts in models:
            exact = None
            for kind in ("F32", "F16"):
                path = folder / f"{kind}.gguf"
                write(source, tokenizer, path, kind)
                alike, logits = compare(lumos, name, path, kind, prompts, exact)
                exact = logits if exact is None else exact
                # The vocabularies of the reference models are not SentencePiece models, so their ranks are artificial.
                assert alike == len(prompts) or name.startswith("llama") or name in FAMILIES, name
            for kind in QUANTIZED:
                path = folder / f"{kind}.gguf"
                quantize(folder / "F16.gguf", path, kind)
                compare(lumos, name, path, kind, prompts, exact)


main()
