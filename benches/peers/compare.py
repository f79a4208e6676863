"""Measures the three engines alternately with the same random weights and prints a table of rates and ratios."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BATCH_SIZES = [1, 8, 32]
DECODE_PROMPT = 16
PREFILL_PROMPT = 256
# Tokens generated for each sequence. Every cell takes at least a second.
NEW_TOKENS = {"110m": 48, "qwen3-110m": 48, "gemma3-110m": 48, "tinyllama": 16}
# Maximum number of processors that other processes may use during a measurement.
MOST_FOREIGN = 0.05
ENGINES = ["lumos", "transformers", "llama.cpp"]
# Formats of GGUF files that llama.cpp creates from bfloat16 weights. transformers would convert them to floats.
QUANTIZED = {"q8_0": "Q8_0", "q4_k": "Q4_K_M", "q6_k": "Q6_K"}


def busy_seconds():
    """Returns the busy time of all processors in seconds, including all processes and time stolen by the host."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _waiting, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Returns the processor time of this process and its children in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(command):
    """Runs a command. Returns its JSON, and the number of processors that other processes used meanwhile."""
    start, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    wall = time.perf_counter() - start
    foreign = ((busy_seconds() - busy) - (own_seconds() - own)) / wall
    return json.loads(done.stdout.strip().splitlines()[-1]), foreign


def lumos(binary, folder, shape, dtype, threads):
    common = [binary, "bench", "engine"]
    if dtype in QUANTIZED:
        common += ["--model", f"candle:{folder / 'model.gguf'}"]
    else:
        common += ["--random-weights", shape, "--dtype", dtype]
    common += ["--threads", str(threads), "--reuse", "off", "--json"]
    sizes = ",".join(map(str, BATCH_SIZES))
    decode = ["--batch-sizes", sizes, "--prompt-tokens", str(DECODE_PROMPT)]
    decode += ["--new-tokens", str(NEW_TOKENS.get(shape, 48) + 1)]
    decoded, foreign = measured(common + decode)
    prefill = ["--batch-sizes", "1,1,1", "--prompt-tokens", str(PREFILL_PROMPT), "--new-tokens", "2"]
    prefilled, also_foreign = measured(common + prefill)
    limit = lambda cell: max(cell["decode_share_of_bandwidth"], cell["decode_share_of_compute"])
    middle = sorted(prefilled["cells"], key=lambda cell: cell["prefill_tokens_per_second"])[1]
    return {
        "decode": {str(c["batch_size"]): c["decode_tokens_per_second"] for c in decoded["cells"]},
        "prefill": middle["prefill_tokens_per_second"],
        "limit": {str(c["batch_size"]): limit(c) for c in decoded["cells"]}
        | {"prefill": middle["prefill_share_of_compute"]},
        "limits": decoded["limits"],
    }, max(foreign, also_foreign)


def peer(engine, folder, dtype, threads, shape):
    common = ["--batch-sizes", ",".join(map(str, BATCH_SIZES)), "--decode-prompt", str(DECODE_PROMPT)]
    common += ["--new-tokens", str(NEW_TOKENS.get(shape, 48)), "--prefill-prompt", str(PREFILL_PROMPT)]
    common += ["--threads", str(threads)]
    if engine == "transformers":
        program = [HERE / "measure_transformers.py", "--model", folder, "--dtype", dtype]
    else:
        program = [HERE / "measure_llama_cpp.py", "--model", folder / "model.gguf"]
    return measured([sys.executable, *program, *common])


def prepared(binary, where, shape, dtype):
    folder = where / f"{shape}-{dtype}"
    file = folder / "model.gguf"
    if dtype in QUANTIZED and not file.exists():
        floats = prepared(binary, where, shape, "bf16") / "model.gguf"
        folder.mkdir(exist_ok=True)
        subprocess.run([sys.executable, HERE / "quantize.py", floats, file, QUANTIZED[dtype]], check=True)
    elif not file.exists():
        save = [binary, "bench", "engine", "--random-weights", shape, "--dtype", dtype, "--save-weights", folder]
        subprocess.run(save, check=True)
        subprocess.run([sys.executable, HERE / "to_gguf.py", folder, folder / "model.gguf"], check=True)
    return folder


def rounds(binary, folder, shape, dtype, threads, count):
    """Yields the figures of each engine after every round: a list with one entry per round, undisturbed."""
    engines = [engine for engine in ENGINES if engine != "transformers" or dtype not in QUANTIZED]
    figures = {engine: [] for engine in engines}
    for turn in range(count):
        # Each round starts with another engine.
        first = turn % len(engines)
        order = engines[first:] + engines[:first]
        for engine in order:
            for attempt in range(1, 11):
                if engine == "lumos":
                    figure, foreign = lumos(binary, folder, shape, dtype, threads)
                else:
                    figure, foreign = peer(engine, folder, dtype, threads, shape)
                told = f"{shape} {dtype} round {turn + 1} {engine}: other processes used {foreign:.2f} processors"
                if foreign <= MOST_FOREIGN:
                    print(told, file=sys.stderr)
                    break
                print(f"{told}; repeating", file=sys.stderr)
            else:
                sys.exit("failed to measure: other processes use too much processor time")
            figures[engine].append(figure)
        yield figures


def median(figures, cell):
    value = lambda one: one["prefill"] if cell == "prefill" else one["decode"][cell]
    return statistics.median(map(value, figures))


def rows(shape, dtype, figures):
    for cell in [*map(str, BATCH_SIZES), "prefill"]:
        rates = {engine: median(one, cell) for engine, one in figures.items()}
        peers = [rate for engine, rate in rates.items() if engine != "lumos"]
        share = statistics.median(one["limit"][cell] for one in figures["lumos"])
        yield {
            "shape": shape,
            "dtype": dtype,
            "cell": "prefill" if cell == "prefill" else f"decode, batch {cell}",
            **rates,
            "ratio": rates["lumos"] / max(peers),
            "share_of_limit": share,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lumos", required=True, help="path of the lumos binary")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--shapes", default="110m,tinyllama", help="shapes of `lumos bench engine`, comma-separated")
    parser.add_argument("--dtypes", default="f32,bf16,q8_0,q4_k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, help="JSON file for the figures, written after every round")
    arguments = parser.parse_args()
    table = []
    print("| shape | weights | cell | lumos tok/s | transformers | llama.cpp | ratio to the faster | share of limit |")
    print("|---|---|---|---:|---:|---:|---:|---:|", flush=True)
    for shape in arguments.shapes.split(","):
        for dtype in arguments.dtypes.split(","):
            folder = prepared(arguments.lumos, arguments.folder, shape, dtype)
            measured_rows = []
            for figures in rounds(arguments.lumos, folder, shape, dtype, arguments.threads, arguments.rounds):
                measured_rows = list(rows(shape, dtype, figures))
                if arguments.output:
                    arguments.output.write_text(json.dumps(table + measured_rows, indent=1))
            table += measured_rows
            for row in measured_rows:
                rates = " | ".join(f"{row[engine]:.1f}" if engine in row else "–" for engine in ENGINES)
                print(
                    f"| {shape} | {dtype} | {row['cell']} | {rates} "
                    f"| {row['ratio']:.2f} | {100 * row['share_of_limit']:.0f} % |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
