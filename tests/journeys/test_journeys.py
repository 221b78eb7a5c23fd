"""Three people's paths, from their raw files to an answer: each command as they would type it."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from firehose.experiments import personalize as personalizing, reproduce as reproducing
from firehose.experiments.jobs import Job
from making import mailbox, reddit_dump, repository, tickets_csv
from small_commands import Commands
from small_experiments import do, tiny_scale


@pytest.fixture
def firehose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Commands:
    """Commands in an empty folder; their runs are done in this process, which saves minutes."""

    def here(jobs: list[Job], *_: int) -> dict[str, str]:
        for job in jobs:
            if not job.is_done:
                do(job)
        return {}

    monkeypatch.chdir(tmp_path)
    for module in (personalizing, reproducing):
        monkeypatch.setattr(module, "execute", here)
    return Commands(monkeypatch, capsys)


LEARNER = '''
from firehose.batch import Batch
from firehose.methods.learners import Learner, draw, recall
from firehose.plugins import Choice


class Waiting(Learner):
    """Learns in some of the rounds only, from a share of new posts: a state and two settings."""

    class Settings(Choice):
        every: int = 1
        share: float = 0.5

    def __init__(self, settings, setup):
        super().__init__(settings, setup)
        self.rounds = 0

    def begin_round(self, step):
        self.rounds += 1

    def gradient(self, step):
        if self.rounds % self.settings.every:
            return None
        new = max(round(self.settings.share * self.step_size), 1)
        posts = [draw(step.released, new, step.generator)]
        posts += recall(step.memory, self.step_size - new, step.generator)
        return step.model.gradient(Batch.join(posts))

    def state(self):
        return {"rounds": self.rounds}

    def restore(self, state):
        self.rounds = state["rounds"]
'''


def test_a_data_scientist_with_a_reddit_dump(firehose: Commands, tmp_path: Path) -> None:
    """From a dump with a name of its own to: does personalization help here?"""
    reddit_dump(tmp_path / "RC_2020-01.zst")
    made = firehose("prepare", "RC_2020-01.zst", "--preset", "reddit", "--out", "c", "--workers", 0)
    assert made.status == 0, made.err
    assert "6 users" in made.out and "a user to leave out" in made.out
    assert "nothing to pretrain on" in made.out  # what is in the way is said at once
    command = ("personalize", "c", "--scale", tiny_scale(tmp_path), "--out", "answer")
    answered = firehose(*command, "--json")
    assert answered.status == 0, answered.err
    told = json.loads(answered.out)
    assert re.match("Knowing who writes|Whether knowing", told["answer"]) and not told["pretrained"]
    page = (tmp_path / "answer" / "index.html").read_text()
    assert told["answer"].split(" (")[0] in page and "[deleted]" not in page
    gain = told["methods"]["model and memories"]["gain"]
    assert gain["low"] <= gain["value"] <= gain["high"]


def test_an_engineer_with_tickets_mails_and_commits(firehose: Commands, tmp_path: Path) -> None:
    """The first attempt fails with a command that works; then a model that speaks for an agent."""
    tickets_csv(tmp_path / "tickets.csv")
    setting = ("--set", "source.delimiter=;")
    failed = firehose("prepare", "tickets.csv", *setting, "--out", "tickets", "--workers", 0)
    assert failed.status == 1
    for column in ("'user' for the user", "'time' for the time", "'text' for the text"):
        assert column in failed.err
    names = ("user=Agent", "time=Opened at", "text=Message")
    columns = [part for name in names for part in ("--set", f"source.columns.{name}")]
    made = firehose(
        "prepare", "tickets.csv", *setting, *columns, "--out", "tickets", "--workers", 0
    )
    assert made.status == 0 and "6 users" in made.out, made.err
    scale = tiny_scale(tmp_path)
    best = ("--optimizer", "averaged", "--predictor", "mixture", "--set", "play.steps=1")
    played = firehose("play", "tickets", "--recipe", scale, *best, "--out", "run")
    assert played.status == 0 and "began with random weights" in played.out, played.err
    said = firehose("suggest", "run", "--user", "ann", "--prompt", "fix the", "--json")
    assert said.status == 0, said.err
    words = json.loads(said.out)
    assert words and all(0 < each["probability"] <= 1 for each in words)
    forgotten = firehose("forget", "run", "--user", "ann", "--json")
    assert forgotten.status == 0, forgotten.err
    erased = json.loads(forgotten.out)
    assert erased["costs of posts"] > 0
    mailbox(tmp_path / "list.mbox")
    mails = firehose("prepare", "list.mbox", "--out", "mails", "--workers", 0, "--json")
    assert mails.status == 0, mails.err
    (corpus,) = json.loads(mails.out)
    assert corpus["users"] == 6 and corpus["read"] == 180
    repository(tmp_path / "project")
    plain = ("--set", "source.authors=plain", "--min-posts", 7)
    commits = firehose("prepare", "project", *plain, "--out", "commits", "--workers", 0, "--json")
    assert commits.status == 0, commits.err
    assert json.loads(commits.out)[0]["users"] == 6, commits.err


EXPERIMENT = """
title = "How long to wait"
about = "A learner of my own."

[[runs]]
[runs.set]
"play.optimizer" = "online-gd"
"play.learner.kind" = "waiting.py:Waiting"
[runs.vary]
"play.learner.every" = [1, 1000]
"play.learner.share" = [0.5, 0.25]

[[tables]]
title = "Online"
rows = ["play.learner.every"]
columns = ["play.learner.share"]
measures = ["online"]

[[claims]]
says = "Learning is better than waiting."
measure = "online"
lower = { "play.learner.every" = "1" }
higher = { "play.learner.every" = "1000" }
within = ["play.learner.share"]
"""


def test_a_researcher_with_a_learner_of_their_own(firehose: Commands, tmp_path: Path) -> None:
    """A stateful learner with two settings, swept in a file, from commits to a verdict."""
    repository(tmp_path / "project", each=24)
    made = firehose("prepare", "project", "--out", "commits", "--workers", 0)
    assert made.status == 0, made.err
    (tmp_path / "waiting.py").write_text(LEARNER)
    (tmp_path / "waiting.toml").write_text(EXPERIMENT)
    scale = tiny_scale(tmp_path)
    done = firehose(
        "reproduce", "waiting.toml", "--corpus", "commits", "--scale", scale, "--seeds", 1,
        "--out", "out", "--trust",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "Learning is better than waiting." in done.out and "Of 1 claim: 1 holds." in done.out
    page = (tmp_path / "out" / "waiting" / "index.html").read_text()
    assert "What was expected, and what is seen here" in page and "the paper" not in page
    assert '<span class="good">holds</span>' in page
    rows = pq.read_table(tmp_path / "out" / "waiting" / "results.parquet").to_pylist()
    online = [row for row in rows if row["measure"] == "online" and not row["part"]]
    assert {(row["play.learner.every"], row["play.learner.share"]) for row in online} == {
        (every, share) for every in ("1", "1000") for share in ("0.5", "0.25")
    }
