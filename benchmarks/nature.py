"""How many posts a second Nature writes, and its truth scores: python benchmarks/nature.py"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Sized
from typing import TypeVar

import numpy as np

from firehose.data.clean import URL
from firehose.data.nature import Nature, population

Items = TypeVar("Items", bound=Sized)


def main() -> None:
    """Print the rates and the floors of a Nature."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--posts", type=int, default=30_000)
    options = parser.parse_args()
    nature = Nature(users=options.users, posts=options.posts)
    clock("population built", lambda: [population(nature)])
    posts = clock(
        "posts written", lambda: [post for shard in nature.shards() for post in nature.read(shard)]
    )
    truth = clock("truth built", lambda: (nature.truth(),))[0]
    ordinary = [p for p in posts if p.language == "en" and not (p.is_retweet or p.is_reply)]
    number = Counter(post.user for post in ordinary)
    kept = [post for post in ordinary if number[post.user] >= 20]
    users, times = [post.user for post in kept], np.array([post.time for post in kept])
    texts = [re.sub(r"https://\S+", URL, post.text) for post in kept]
    counts = truth.tally(users, times)
    words = sum(len(text.split()) + 1 for text in texts)
    floors = {
        "nats": clock("nats", lambda: truth.nats(users, times, texts)),
        "agnostic, train": clock(
            "agnostic, train", lambda: truth.agnostic_nats(times, texts, counts, "train")
        ),
        "agnostic, balanced": clock(
            "agnostic, balanced", lambda: truth.agnostic_nats(times, texts, counts, "balanced")
        ),
    }
    for name, nats in floors.items():
        print(f"{name:20} word perplexity {np.exp(nats.sum() / words):8.2f}")
    print(f"{'uniform':20} word perplexity {len(truth.words) + 1:8}")


def clock(name: str, work: Callable[[], Items]) -> Items:
    """What ``work`` returns; prints how long it took for each item of it."""
    begin = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begin
    print(f"{name:20} {seconds:8.2f} s {len(result) / seconds:12,.0f} /s")
    return result


if __name__ == "__main__":
    main()
