"""The command line: helpful when asked, one sentence when something is wrong."""

import bz2
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from conftest import simple_posts, write_posts
from firehose.data.corpus import Corpus


def firehose(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "firehose", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_help_names_every_command() -> None:
    said = firehose("--help").stdout
    for command in (
        *("demo", "prepare", "stats", "check", "pretrain", "offline", "evaluate"),
        *("generate", "suggest", "convert", "play", "resume", "compare", "serve"),
    ):
        assert command in said


def test_prepare_shows_what_it_removed_and_skipped(tmp_path: Path) -> None:
    posts = simple_posts()
    posts[3] = posts[3]._replace(language="de")
    path = write_posts(tmp_path / "posts.jsonl", posts)
    with path.open("a") as file:
        file.write("{broken\n")
    done = firehose("prepare", path, "--out", tmp_path / "corpus", "--workers", 0)
    assert done.returncode == 0, done.stderr
    assert "language other than en" in done.stdout
    assert "broken JSON" in done.stdout
    assert "posts.jsonl:73" in done.stdout
    *_, lengths, unpretrained, few = done.stdout.splitlines()
    assert re.fullmatch(
        r"99\s% of the posts have at most \d+ tokens; a model with max_tokens = 50 cuts .*", lengths
    )
    assert "--pretrain-before" in unpretrained and "--min-posts" in few  # remedies
    assert done.stderr == ""  # no bars where there is no terminal
    assert (tmp_path / "corpus" / "config.toml").exists()
    again = firehose(
        "prepare", "--config", tmp_path / "corpus/config.toml", "--out", tmp_path / "again"
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (
        tmp_path / "corpus" / "manifest.json"
    ).read_bytes()


def test_a_flag_wins_over_an_assignment(tmp_path: Path) -> None:
    write_posts(tmp_path / "posts.jsonl", simple_posts())
    options = ("--set", "clean.min_posts=90", "--min-posts", 21, "--workers", 0)
    done = firehose("prepare", "posts.jsonl", *options, "--out", "corpus", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "users with fewer than 21 posts" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prepare", "missing.parquet", "--out", "x"], "missing.parquet does not exist."),
        (["pretrain", "none", "--out", "x"], "none does not exist; make one with"),
        (["offline", "none", "--out", "x", "--set", "modle.mlp=3"], "did you mean 'model'?"),
        (["play", "none", "--recipe", "lapto", "--out", "x"], "did you mean 'laptop'?"),
        (["generate", "none", "--prompt", "a"], "none does not exist; make one with"),
        (["generate", "none", "--prompt", "a", "--top-p", "2"], "top_p = 2.0 in the options"),
        (["evaluate", "none", "none"], "none does not exist; make one with"),
        (["resume", "none"], "none does not exist; begin one with"),
        (["serve", "--state", "x"], "name the model to begin with"),
        (["serve", "none", "--state", "x", "--host", "0.0.0.0"], "which needs a token"),
        (["listen", "jsonl", "--into", "http://x", "--token-file", "none"], "Cannot read none"),
        (["report", "none"], "none does not exist; begin one with"),
        (["reproduce", "test"], "Name the corpus to play on: --corpus DIR"),
        (["reproduce", "tests", "--corpus", "none"], "did you mean 'test'?"),
        (["reproduce", "test", "--corpus", "none"], "none does not exist"),
        (["prepare", "--source", "tabula", "--out", "x"], "did you mean 'tabular'?"),
        (["prepare", "odd.txt", "--out", "x"], "Cannot tell what odd.txt is; say it with --source"),
        (["prepare", "--set", "clean.min_post=9", "--out", "x"], "did you mean 'min_posts'?"),
        (["prepare", "--set", "source.yeers=9", "--out", "x"], "did you mean 'years'?"),
        (["prepare", "--small", "2", "--out", "x"], "split.small = 2.0 in the configuration"),
        (["prepare", "--pretrain-before", "soon", "--out", "x"], "pretrain_before = 'soon'"),
        (["prepare", "posts.jsonl", "--vocab-size", "90000", "--out", "x"], "ask for at most"),
        (
            ["prepare", "posts.jsonl", "--vocab-model", "odd.txt", "--out", "x"],
            "not a SentencePiece",
        ),
        (["prepare", "posts.jsonl", "--min-posts", "90", "--out", "x"], "No user with 90 posts"),
        (
            ["prepare", "posts.jsonl", "--set", "source.columns.user=who", "--out", "x"],
            "posts.jsonl",
        ),
        (["stats", "."], "is not a corpus"),
        (["prepare", "posts.jsonl", "--source", "nature", "--out", "x"], "reads no paths"),
        (["prepare", "--vocab-size", "1", "--out", "x"], "greater than or equal to 270"),
        (["check", "nowhere"], "does not exist"),
    ],
)
def test_wrong_input_is_one_sentence_and_status_1(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "odd.txt").write_text("odd")
    write_posts(tmp_path / "posts.jsonl", simple_posts())
    done = firehose(*arguments, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("Error: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.txt", "posts.jsonl"]


def test_check_finds_a_flipped_bit(small_corpus: Corpus, tmp_path: Path) -> None:
    import shutil

    assert "is undamaged" in firehose("check", small_corpus.path).stdout
    shutil.copytree(small_corpus.path, tmp_path / "copy")
    tokens = tmp_path / "copy" / "train" / "tokens.npy"
    data = bytearray(tokens.read_bytes())
    data[-1] ^= 4
    tokens.write_bytes(data)
    done = firehose("check", tmp_path / "copy")
    assert done.returncode == 1
    assert "train/tokens.npy does not match its checksum" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["prepare"], ["prepare", "--min-posts", "x", "--out", "y"], ["prepared"]]
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments: list[str]) -> None:
    done = firehose(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_published_lists_decide_which_tweets_and_which_split(tmp_path: Path) -> None:
    when = "Wed Oct 10 20:{:02}:00 +0000 2018"
    tweets = [
        {
            "id_str": str(1000 + n),
            "user": {"id_str": str(n % 2)},
            "text": f"tweet number {n} of this user",
            "created_at": when.format(n),
            "lang": "ja" if n == 3 else "en",
            **({"retweeted_status": {}} if n == 5 else {}),
        }
        for n in range(40)
    ]
    lines = "".join(json.dumps(tweet) + "\n" for tweet in tweets).encode()
    with tarfile.open(tmp_path / "grab.tar", "w") as tar:
        member = tarfile.TarInfo("2018/10/10/20/00.json.bz2")
        packed = bz2.compress(lines)
        member.size = len(packed)
        tar.addfile(member, io.BytesIO(packed))
    lists = {"train": range(20), "valid": range(20, 24), "test": range(24, 29)}
    (tmp_path / "lists").mkdir()
    for name, numbers in lists.items():
        rows = [f"{n % 2},{1000 + n},{when.format(n)}\n" for n in numbers]
        (tmp_path / "lists" / f"{name}.csv").write_text("user,tweet,time\n" + "".join(rows))
    done = firehose(
        "prepare", tmp_path / "grab.tar", "--ids", tmp_path / "lists", "--out", tmp_path / "c"
    )
    assert done.returncode == 0, done.stderr
    corpus = Corpus(tmp_path / "c")
    assert corpus.manifest.posts == {"train": 20, "validation": 4, "test": 5}
    assert corpus.manifest.skipped == {"not in the published list": 11}
    listed = {key_of(1000 + n) for n in lists["test"]}
    assert set(corpus.splits["test"].key.tolist()) == listed


def key_of(tweet: int) -> int:
    return int.from_bytes(hashlib.blake2b(str(tweet).encode(), digest_size=8).digest(), "little")


def test_every_command_is_a_function() -> None:
    import firehose as package

    done = subprocess.run(
        [sys.executable, "-c", "from firehose import check, demo, prepare, stats; print(demo)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "function demo" in done.stdout
    data, models = {"demo", "prepare", "stats", "check"}, {"pretrain", "offline", "evaluate"}
    writing = {"generate", "suggest", "convert"}
    assert set(package.__all__) >= data | models | writing | {"play", "resume", "compare"}
