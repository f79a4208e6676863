"""Encoded examples in flat arrays, batches from them by index, and processes that make them.

Everything is a function of the seed: a chunk's content of the seed and its number, and the order of the batches of the chunks' contents. The
number of processes and their speed do not matter.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import queue
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .examples import IGNORE, Example

#: Examples that are sorted by length to form batches.
POOL = 8192
#: Widths are multiples of this.
STEP = 16


@dataclass(frozen=True)
class Store:
    """Examples one after the other: token ids and targets, the index at which each begins (and the last ends), and a name of each."""

    ids: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    names: np.ndarray

    @staticmethod
    def of(examples: Sequence[tuple[str, Example]]) -> Store:
        """Returns the store of examples and their names. Ids must be below 32,768."""
        lengths = [len(example.ids) for _, example in examples]
        return Store(
            np.fromiter((token for _, example in examples for token in example.ids), np.int16, sum(lengths)),
            np.fromiter((target for _, example in examples for target in example.targets), np.int16, sum(lengths)),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64),
            np.array([name for name, _ in examples], dtype="U40"),
        )

    @staticmethod
    def joined(stores: Iterable[Store]) -> Store:
        """Returns all examples of several stores."""
        stores = list(stores)
        ends = np.cumsum([0, *(len(store.ids) for store in stores)])
        starts = [store.starts[:-1] + end for store, end in zip(stores, ends, strict=False)]
        return Store(
            np.concatenate([store.ids for store in stores]),
            np.concatenate([store.targets for store in stores]),
            np.concatenate([*starts, ends[-1:]]).astype(np.int64),
            np.concatenate([store.names for store in stores]),
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example."""
        return np.diff(self.starts)

    def rows(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids and targets `[examples, width]` of some examples, padded on the right with 0 and IGNORE."""
        lengths = self.lengths[index]
        columns = np.arange(-(-int(lengths.max()) // STEP) * STEP)
        inside = columns < lengths[:, None]
        at = np.where(inside, self.starts[index][:, None] + columns, 0)
        return np.where(inside, self.ids[at], 0).astype(np.int64), np.where(inside, self.targets[at], IGNORE).astype(np.int64)

    def groups(self, chosen: np.ndarray, tokens: int, r: np.random.Generator) -> Iterator[np.ndarray]:
        """Yields the indices `chosen`, which are in random order, in batches of at most `tokens` tokens, of similar lengths."""
        lengths = self.lengths
        for start in range(0, len(chosen), POOL):
            pool = chosen[start : start + POOL]
            pool = pool[np.argsort(-lengths[pool], kind="stable")]
            batches, first = [], 0
            while first < len(pool):
                width = -(-int(lengths[pool[first]]) // STEP) * STEP
                count = max(1, tokens // width)
                batches.append(pool[first : first + count])
                first += count
            for batch in r.permutation(len(batches)):
                yield batches[batch]


def repeated(store: Store, tokens: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches of all examples again and again, in another order each time."""
    r = np.random.default_rng(seed)
    while True:
        for group in store.groups(r.permutation(len(store)), tokens, r):
            yield store.rows(group)


def windowed(chunks: Iterable[Store], tokens: int, reuse: int, seed: int, window: int = 16) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields batches of the last `window` chunks. Each example is used about `reuse` times before its chunk is dropped."""
    r = np.random.default_rng(seed)
    recent: deque[Store] = deque(maxlen=window)
    for chunk in chunks:
        recent.append(chunk)
        store = Store.joined(recent)
        chosen = r.choice(len(store), min(len(store), reuse * len(chunk)), replace=False)
        for group in store.groups(chosen, tokens, r):
            yield store.rows(group)


def _work(make: Callable[[int], Store | None], first: int, step: int, count: int | None, done: multiprocessing.Queue) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    number, parent = first, os.getppid()
    while count is None or number < count:
        try:
            chunk = make(number)
        except Exception:  # noqa: BLE001 (one chunk is not worth a training)
            traceback.print_exc()
            chunk = None
        number += step
        while True:
            try:
                done.put(chunk, timeout=5)
                break
            except queue.Full:
                if os.getppid() != parent:
                    return


def produced(make: Callable[[int], Store | None], workers: int, count: int | None = None) -> Iterator[Store]:
    """Yields `make(0)`, `make(1)`, … in order, made by processes; endless without a `count`. A chunk that fails is left out.

    The processes start at the call, before a GPU is used, and end with this process.
    """
    context = multiprocessing.get_context("fork")
    try:
        queues = [context.Queue(2) for _ in range(workers)]
    except OSError as error:  # no shared memory for semaphores
        print(f"no processes ({error}); making chunks in this one", flush=True)
        numbers = range(count) if count is not None else itertools.count()
        return (chunk for chunk in map(make, numbers) if chunk is not None and len(chunk))
    processes = [context.Process(target=_work, args=(make, i, workers, count, queues[i]), daemon=True) for i in range(workers)]
    for process in processes:
        process.start()

    def chunks() -> Iterator[Store]:
        number, failed = 0, 0
        while (count is None or number < count) and failed < 100 * workers:
            process, done = processes[number % workers], queues[number % workers]
            number += 1
            chunk = None
            while True:
                try:
                    chunk = done.get(timeout=2)
                    break
                except queue.Empty:
                    if not process.is_alive():
                        break
            failed = 0 if chunk is not None else failed + 1
            if chunk is not None and len(chunk):
                yield chunk
        for process in processes:
            process.terminate()
            process.join()

    return chunks()
