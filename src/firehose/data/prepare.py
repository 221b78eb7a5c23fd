"""Make a corpus from a stream of posts, in five stages.

1. *read* — shards of the source become posts in parts, each with all posts of some users;
2. *settle* — the posts of each part are cleaned and split, and sorted by time;
3. *vocabulary* — SentencePiece is trained on the counts of words;
4. *encode* — slices of time, from all parts, become arrays;
5. *assemble* — the arrays of all slices are joined to the corpus.

Each stage writes files for the next one, in a workspace beside the result. Each task of a stage
holds a bounded number of posts, so that memory does not grow with the stream, unless a single user
or a single moment has most of the posts.
"""

import os
from collections import ChainMap, Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import firehose
from firehose.data import encoding, floor, wordcount
from firehose.data.corpus import SPLITS, Corpus, Step, is_corpus
from firehose.data.engine import Runner, Task, refuse_unshared, run
from firehose.data.plan import Plan
from firehose.data.reading import parts, read_shard
from firehose.data.settling import settle_part, steps
from firehose.data.vocabulary import MOST_WORDS, Vocabulary
from firehose.errors import FirehoseError
from firehose.progress import announce, track
from firehose.storage.workspace import workspace


class Prepared(NamedTuple):
    """The corpora that were made, and examples of records that could not be read."""

    corpora: list[Corpus]
    examples: dict[str, str]  # by reason, where the first such record was


@dataclass(frozen=True)
class Execution:
    """How many processes do the work, and where; the result does not depend on it."""

    workers: int = os.cpu_count() or 1
    runner: Runner = "native"

    def __post_init__(self) -> None:
        if self.workers < 0 or self.runner not in get_args(Runner):
            raise FirehoseError(
                f"{self.workers} workers on {self.runner!r} cannot do the work: "
                f"choose 0 or more, on {' or '.join(get_args(Runner))}."
            )

    def each(self, work: Callable[[Task], Task], tasks: Sequence[Task], doing: str) -> list[Task]:
        """Do the work of all tasks; returns the results in the order of the tasks."""
        done = dict(track(run(work, tasks, self.workers, self.runner), len(tasks), doing))
        return [done[number] for number in range(len(tasks))]


HERE = Execution()


def prepare(
    plan: Plan,
    out: str | Path,
    execution: Execution = HERE,
    strict: bool = False,
    replace: bool = False,
) -> Prepared:
    """Make the corpus that ``plan`` describes in the folder ``out``, whole or not at all.

    The same plan gives the same bytes with every execution. With ``plan.split.small`` two corpora
    are made, ``out/small`` and ``out/large``. With ``strict``, the first record that cannot be read
    is an error; with ``replace``, an older corpus at ``out`` is replaced.
    """
    given = Path(out).expanduser()
    out = Path(os.path.abspath(given))  # noqa: PTH100 (".." must go)
    if replace and out.exists() and not is_corpus(out):
        raise FirehoseError(f"{out} is not a corpus, so --replace leaves it alone.")
    names = ["large", "small"] if plan.split.small else ["corpus"]
    if plan.vocabulary.model:
        Vocabulary.load(plan.vocabulary.model)  # an error is raised now, not after two stages
    with workspace(out, replace) as folder:
        refuse_unshared(folder, execution.runner)
        read, settled = _read_and_settle(plan, folder, execution, strict)
        account = _account(plan, read, settled)
        users = _number_users(folder, names)
        if not all(map(len, users)):
            raise FirehoseError(_nobody(plan, users, account, _examples(read)))
        with announce("making the vocabulary"):
            counts = wordcount.count_words(folder / "words")
            _make_vocabulary(plan, folder, counts)
            words = wordcount.by_category(counts, names)
        slices = encoding.slices([time for part in settled for time in part["times"]])
        encode = partial(encoding.encode_slice, folder, names)
        encoded = execution.each(encode, slices, "encoding")
        if floor.is_known(plan):
            for name, own_users in zip(names, users, strict=True):
                floor.tally(plan, folder, name, own_users["user"].to_pylist())
            execution.each(partial(floor.floor_slice, plan, folder, names), slices, "the floor")
        with announce("putting the corpus together"):
            (folder / "config.toml").write_text(plan.to_toml(), encoding="utf-8")
            for name, own_users, own_words in zip(names, users, words, strict=True):
                sizes = {
                    split: encoding.total(task["counts"][f"{name}/{split}"] for task in encoded)
                    for split in SPLITS
                }
                told = account | {"words": own_words, "config": plan.public()}
                result = folder / "result" / (name if plan.split.small else "")
                encoding.assemble(folder, name, own_users, sizes, told, result)
    places = [given / name for name in sorted(names)] if plan.split.small else [given]
    return Prepared([Corpus(place) for place in places], _examples(read))


def _read_and_settle(
    plan: Plan, folder: Path, execution: Execution, strict: bool
) -> tuple[list[Task], list[Task]]:
    """Do the first two stages; returns the results of all shards and of all parts."""
    for stage in ("read", "posts", "users", "words", "slices"):
        (folder / stage).mkdir()
    with announce("finding the posts"):
        shards = [{"number": n, "shard": shard} for n, shard in enumerate(plan.source.shards())]
    spool = partial(read_shard, plan.source, folder / "read", plan.clean.max_characters, strict)
    read = execution.each(spool, shards, "reading")
    settle = partial(settle_part, plan, folder, read)
    return read, execution.each(settle, parts(read), "cleaning and splitting")


def _examples(read: Sequence[Task]) -> dict[str, str]:
    """For each reason why records could not be read, where the first of them was."""
    return dict(ChainMap(*(shard["examples"] for shard in read)))


def _account(plan: Plan, read: Sequence[Task], settled: Sequence[Task]) -> dict[str, Any]:
    """What the manifest says of what was read, skipped, and removed by each cleaning step."""
    skipped = sum((Counter[str](shard["skipped"]) for shard in read), Counter[str]())
    posts = np.sum([part["posts"] for part in settled], axis=0).tolist()
    lost = np.sum([part["lost"] for part in settled], axis=0).tolist()
    removed = zip(steps(plan.clean), posts, lost, strict=True)
    return {
        "version": firehose.__version__,
        "read": sum(posts for shard in read for _, posts in shard["batches"]) + skipped.total(),
        "read_users": sum(part["users"] for part in settled),
        "skipped": dict(sorted(skipped.items())),
        "steps": [Step(name=name, posts=posts, users=users) for name, posts, users in removed],
    }


def _nobody(
    plan: Plan, users: Sequence[pa.Table], account: dict[str, Any], examples: dict[str, str]
) -> str:
    """The sentence that says why a corpus would have no users."""
    if some := sum(map(len, users)):
        which = "small" if len(users[0]) else "large"
        return (
            f"None of {some:,} users falls into the {which} corpus; choose another share than "
            f"--small {plan.split.small}, or another --seed."
        )
    read, skipped = account["read"], sum(account["skipped"].values())
    if read == 0:
        return "There are no posts in the source."
    if read == skipped:
        reasons = [
            f"{reason}: {count:,}"
            + (f", first in {examples[reason]}" if reason in examples else "")
            for reason, count in account["skipped"].items()
        ]
        return f"None of {read:,} records is a post ({'; '.join(reasons)})."
    went = [f"{step.name}: {step.posts:,}" for step in account["steps"] if step.posts]
    early = read - skipped - sum(step.posts for step in account["steps"])
    went += [f"before {plan.split.pretrain_before}: {early:,}"] if early else []
    return (
        f"No user with {plan.clean.min_posts} posts is left of {read - skipped:,} posts "
        f"({'; '.join(went)}); clean less, for example with a smaller --min-posts."
    )


def _number_users(folder: Path, names: Sequence[str]) -> list[pa.Table]:
    """Number the users of each corpus by the time of their first post, and write ``index.npy``.

    It holds the number of each user by part and by number within the part.
    """
    tables = [pq.read_table(path) for path in sorted((folder / "users").glob("*.parquet"))]
    parts = [np.full(len(table), part) for part, table in enumerate(tables)]
    users = pa.concat_tables(tables).append_column("part", pa.array(np.concatenate(parts)))
    users = users.sort_by([("first", "ascending"), ("user", "ascending")])
    most = max((table["number"].to_numpy().max(initial=0) for table in tables), default=0)
    index = np.full((len(tables), int(most) + 1), -1, np.int32)
    numbered = []
    for number in range(len(names)):
        own = users.filter(pa.array(users["small"].to_numpy() == number))
        index[own["part"].to_numpy(), own["number"].to_numpy()] = np.arange(len(own))
        numbered.append(own.select(["user", "first", "train", "validation", "test"]))
    np.save(folder / "index.npy", index)
    return numbered


def _make_vocabulary(plan: Plan, folder: Path, counts: pa.Table) -> None:
    """Write the vocabulary that is given, or one trained on the text to train on."""
    if plan.vocabulary.model:
        vocabulary = Vocabulary.load(plan.vocabulary.model)
    else:
        frequent = wordcount.most_frequent(counts, MOST_WORDS)
        vocabulary = Vocabulary.train(frequent, plan.vocabulary.size)
    (folder / "vocabulary.model").write_bytes(vocabulary.model)
