"""The floor: the lowest loss that is possible on each post, where the source knows the true model.

It is stored with the posts, in nats, for the best predictor that knows the user and for the best
one that does not. No learner can do better in expectation, so results can be compared with it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from firehose.data.encoding import members, read_raw, read_slice, write_raw
from firehose.data.engine import Task
from firehose.data.plan import Plan
from firehose.data.post import USER_SPLITS
from firehose.data.truth import Weights

LONGEST = 1_000  # characters; all simulated posts are shorter, and to drop some would be a bias


def is_known(plan: Plan) -> bool:
    """Whether the source knows the true model of the posts that the plan keeps."""
    # It is the model of ordinary English posts; retweets, replies and others must be dropped.
    clean = plan.clean
    is_ordinary = clean.drop_retweets and clean.drop_replies and clean.languages == ("en",)
    is_whole = clean.mentions == "keep" and clean.max_characters >= LONGEST
    return is_ordinary and is_whole and plan.source.truth() is not None


def tally(plan: Plan, folder: Path, corpus: str, users: Sequence[str]) -> None:
    """Count who posts when in a corpus, from its encoded slices, and write it to ``folder``."""
    truth = plan.source.truth()
    assert truth is not None
    counts = truth.tally([], np.empty(0, np.int64))
    for split in USER_SPLITS:
        place = f"{corpus}/{split}"
        numbers = read_raw(folder, place, "user", np.int32)
        times = read_raw(folder, place, "time", np.int64)
        for user, time in zip(numbers, times, strict=True):
            counts += truth.tally([users[number] for number in user.tolist()], time)
    np.save(folder / f"{corpus}.tally.npy", counts)


def floor_slice(plan: Plan, folder: Path, corpora: Sequence[str], task: Task) -> Task:
    """Write the floor of each post of a slice as a raw column, like those of `encode_slice`."""
    truth = plan.source.truth()
    assert truth is not None
    posts = read_slice(folder, task)
    names = [_names(path) for path in sorted((folder / "users").glob("*.parquet"))]
    tallies = {corpus: np.load(folder / f"{corpus}.tally.npy") for corpus in corpora}
    for place, chosen in members(posts, corpora):
        corpus, split = place.split("/")
        if split == "pretrain":
            continue  # these posts have no user
        own = posts.filter(chosen)
        times, texts = own["time"].to_numpy(), own["text"].to_pylist()
        owners = zip(own["part"].to_pylist(), own["user"].to_pylist(), strict=True)
        users = [names[part][number] for part, number in owners]
        weights: Weights = "train" if split == "train" else "balanced"
        known = truth.nats(users, times, texts)
        agnostic = truth.agnostic_nats(times, texts, tallies[corpus], weights)
        write_raw(folder, place, "floor", task["number"], np.stack([known, agnostic], axis=1))
    return {}


def _names(path: Path) -> dict[int, str]:
    users = pq.read_table(path, columns=["number", "user"])
    return dict(zip(users["number"].to_pylist(), users["user"].to_pylist(), strict=True))
