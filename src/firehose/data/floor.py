"""The floor: the lowest loss that is possible on each post, where the source knows the true model.

It is stored with the posts, in nats, for the best predictor that knows the user and for the best
one that does not. No learner can do better in expectation, so results can be compared with it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from firehose.data.corpus import Floor
from firehose.data.encoding import members, read_raw, read_slice, write_raw
from firehose.data.engine import Task
from firehose.data.plan import Plan
from firehose.data.post import USER_SPLITS

LONGEST = 1_000  # characters; all simulated posts are shorter, and to drop some would be a bias


def is_known(plan: Plan) -> bool:
    """Whether the source knows the true model of the posts that the plan keeps."""
    return plan.source.truth() is not None and (
        # It is the model of ordinary English posts; retweets, replies and others must be dropped.
        plan.clean.drop_retweets
        and plan.clean.drop_replies
        and plan.clean.languages == ("en",)
        and plan.clean.mentions == "keep"
        and plan.clean.max_characters >= LONGEST
    )


def tally(plan: Plan, folder: Path, corpus: str, users: Sequence[str]) -> None:
    """Count who posts when in a corpus, from its encoded slices, and write it to ``folder``."""
    truth = plan.source.truth()
    assert truth is not None
    counts = truth.tally([], np.empty(0, np.int64))
    for split in USER_SPLITS:
        blocks = [
            read_raw(folder, f"{corpus}/{split}", "user", np.int32),
            read_raw(folder, f"{corpus}/{split}", "time", np.int64),
        ]
        for user, time in zip(*blocks, strict=True):
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
        weights: Literal["train", "balanced"] = "train" if split == "train" else "balanced"
        nats = [
            truth.nats(users, times, texts),
            truth.agnostic_nats(times, texts, tallies[corpus], weights),
        ]
        write_raw(folder, task, place, "floor", np.stack(nats, axis=1))
    return {"number": task["number"]}


def floor_of(floors: Iterable[NDArray[Any]], words: Iterable[NDArray[Any]]) -> Floor:
    """The best possible word perplexities on posts, from blocks of their two columns."""
    nats = sum((block.reshape(-1, 2).sum(axis=0) for block in floors), start=np.zeros(2))
    personalized, agnostic = np.exp(nats / sum(int(block.sum()) for block in words)).tolist()
    return Floor(personalized=personalized, agnostic=agnostic)


def _names(path: Path) -> dict[int, str]:
    users = pq.read_table(path, columns=["number", "user"])
    return dict(zip(users["number"].to_pylist(), users["user"].to_pylist(), strict=True))
