"""Reads the samples of a large file in random order, as the loader of a training run does.

    python data_loader.py --make 50000 /srv/data/samples
    python data_loader.py xdfs://data.example.org/samples
    python data_loader.py --kind processes xdfs://data.example.org/samples

Any URL of fsspec will do, so that `file:///srv/data/samples` shows what the disk gives. Each worker
takes batches of sample numbers and fetches the samples of a batch in one flight; every sample is
checked. With processes each opens a session of its own, after it has begun.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import random
import time

import fsspec


def content(number: int, size: int) -> bytes:
    """The bytes of a sample."""
    return (number.to_bytes(8, "big") * (size // 8 + 1))[:size]


class Samples:
    """The samples of a URL. It may be passed to other processes, where it opens its own session."""

    def __init__(self, url: str, options: dict, size: int) -> None:
        self.url, self.options, self.size = url, options, size
        self._opened = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_opened": None}

    def _open(self):
        if self._opened is None:
            self._opened = fsspec.core.url_to_fs(self.url, **self.options)
        return self._opened

    def __len__(self) -> int:
        fs, path = self._open()
        return fs.size(path) // self.size

    def batch(self, numbers: list[int]) -> list[bytes]:
        """The samples with these numbers."""
        fs, path = self._open()
        starts = [number * self.size for number in numbers]
        ends = [start + self.size for start in starts]
        return fs.cat_ranges([path] * len(numbers), starts, ends, on_error="raise")


def _checked(samples: Samples, numbers: list[int]) -> int:
    for number, sample in zip(numbers, samples.batch(numbers), strict=True):
        if sample != content(number, samples.size):
            raise ValueError(f"sample {number} is another one")
    return len(numbers)


_samples: Samples | None = None


def _begin(samples: Samples) -> None:
    """The samples of this process."""
    global _samples
    _samples = samples


def _checked_here(numbers: list[int]) -> int:
    assert _samples is not None
    return _checked(_samples, numbers)


def read_all(samples: Samples, kind: str, workers: int, batch: int, seed: int) -> tuple[int, float]:
    """Reads every sample once, and returns their number and the seconds that it took."""
    order = list(range(len(samples)))
    random.Random(seed).shuffle(order)
    batches = [order[at : at + batch] for at in range(0, len(order), batch)]
    if kind == "threads":
        _begin(samples)
        pool: concurrent.futures.Executor = concurrent.futures.ThreadPoolExecutor(workers)
    else:
        # After a fork the session of the parent could not be used.
        spawn = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(workers, spawn, _begin, (samples,))
    with pool:
        # A first batch each, so that the start of the processes isn't measured.
        list(pool.map(_checked_here, batches[:workers]))
        began = time.monotonic()
        count = sum(pool.map(_checked_here, batches))
        return count, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--make", type=int, metavar="COUNT", help="write so many samples first")
    parser.add_argument("--size", type=int, default=100_000, help="bytes of a sample")
    parser.add_argument("--kind", choices=["threads", "processes"], default="threads")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="samples of a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--options", type=json.loads, default={}, help="of the file system, as JSON")
    args = parser.parse_args()
    if args.make is not None:
        with fsspec.open(args.url, "wb", **args.options) as file:
            for number in range(args.make):
                file.write(content(number, args.size))
        return
    samples = Samples(args.url, args.options, args.size)
    count, seconds = read_all(samples, args.kind, args.workers, args.batch, args.seed)
    rate = count * args.size / seconds / 1e6
    print(
        f"{count:,} samples of {args.size:,} bytes through {args.workers} {args.kind}: "
        f"{count / seconds:,.0f} samples/s, {rate:,.0f} MB/s"
    )


if __name__ == "__main__":
    main()
