"""What a stream costs compressors and memories: prices that are computed by hand."""

import bz2
import json
import lzma
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import prepared, simple_posts
from firehose.cli.app import app
from firehose.data.corpus import Corpus
from firehose.experiments.compare import compare, write
from firehose.experiments.curves import FIGURES
from firehose.game import baseline as module
from firehose.game.baseline import Baseline, Price, baseline, memory_bits, read_baseline
from firehose.game.compressors import COMPRESSORS, MEMORY, ORDER
from firehose.game.run import play
from firehose.game.settings import make_settings
from small_models import TINY_GAME


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Forty hours of posts, the first seven of them before the stream."""
    before = {"pretrain_before": "2014-05-14"}
    posts = simple_posts(posts=40)
    return prepared(tmp_path_factory.mktemp("priced"), posts, split=before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPRESSORS", COMPRESSORS[2:3])  # bzip2


def text_of(corpus: Corpus, *names: str) -> bytes:
    lines = []
    for split in (corpus.splits[name] for name in names):
        for start, stop in zip(split.offsets, split.offsets[1:], strict=False):
            lines.append(corpus.vocabulary.decode(split.tokens[start:stop]) + "\n")
    return "".join(lines).encode()


def ppmd_bytes(text: bytes) -> int:
    pyppmd = pytest.importorskip("pyppmd")
    encoder = pyppmd.Ppmd7Encoder(ORDER, MEMORY)
    return len(encoder.encode(text) + encoder.flush())


SIZES: dict[str, Callable[[bytes], int]] = {
    "bzip2": lambda text: len(bz2.compress(text, 9)),
    "xz": lambda text: len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)),
    f"PPMd, order {ORDER}": ppmd_bytes,
}


@pytest.mark.parametrize("name", SIZES)
def test_the_price_is_that_of_the_stream_after_the_past(
    name: str, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = SIZES[name]
    whole, past = size(text_of(corpus, "pretrain", "train")), size(text_of(corpus, "pretrain"))
    monkeypatch.setattr(module, "COMPRESSORS", [c for c in COMPRESSORS if c.name == name])
    monkeypatch.setattr(module, "AT_ONCE", 7)  # the text comes in several blocks
    found = baseline(corpus, tmp_path / "prices.json")
    words = int(np.sum(corpus.splits["train"].words))
    assert found.words == words
    assert found.prices[0].bits == 8 * (whole - past)
    assert found.prices[0].perplexity == pytest.approx(2 ** (8 * (whole - past) / words))
    assert json.loads((tmp_path / "prices.json").read_text())["prices"][0]["name"] == name


@pytest.mark.skipif(shutil.which("zpaq") is None, reason="zpaq is not installed")
def test_zpaq_is_priced_by_its_archive(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(text := text_of(corpus, "train"))
    command = ["zpaq", "add", "archive.zpaq", "text", "-m5"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    size = (tmp_path / "archive.zpaq").stat().st_size
    assert COMPRESSORS[-1].bits([text[:100], text[100:]]) == 8 * size


@pytest.mark.usefixtures("quick")
def test_without_posts_before_the_stream_it_is_the_stream_alone(
    small_corpus: Corpus, tmp_path: Path
) -> None:
    assert "pretrain" not in small_corpus.splits
    found = baseline(small_corpus, tmp_path / "prices.json")
    assert found.prices[0].bits == 8 * len(bz2.compress(text_of(small_corpus, "train"), 9))


def test_memories_pay_before_they_remember(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all posts in one round and no past, all that is known is the number of pieces."""
    train = corpus.splits["train"]
    monkeypatch.setattr(module, "past_of", lambda _: ())
    monkeypatch.setattr(module, "ROUND", len(train))
    tokens = len(train.tokens) - len(train)
    assert memory_bits(corpus) == pytest.approx(tokens * math.log2(corpus.vocabulary.size))
    monkeypatch.setattr(module, "ROUND", 4)
    assert memory_bits(corpus) < 0.7 * tokens * math.log2(corpus.vocabulary.size)


def test_what_is_not_installed_is_left_out(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = [COMPRESSORS[3]._replace(module="no_such_module"),
              COMPRESSORS[4]._replace(program="no-such-program")]  # fmt: skip
    monkeypatch.setattr(module, "COMPRESSORS", absent)
    found = baseline(corpus, tmp_path / "prices.json")
    assert [price.name for price in found.prices] == ["memories alone"]


@pytest.mark.usefixtures("quick")
def test_reports_show_the_prices_in_the_folder_of_the_corpus(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, simple_posts())
    play(corpus, tmp_path / "run", make_settings(assignments=TINY_GAME))
    mixed = ["play.predictor=mixture", "play.predictor.hidden=8"]
    play(corpus, tmp_path / "mixed", make_settings(assignments=TINY_GAME + mixed))
    runs = [tmp_path / "run", tmp_path / "mixed"]
    assert not compare(runs).prices
    told = CliRunner().invoke(app, ["baseline", str(corpus.path), "--json"])
    assert told.exit_code == 0
    found = compare(runs)
    assert [run.name for run in found.runs] == [
        "mixed replay × ConGraD", "mixed replay × ConGraD, mixture"
    ]  # fmt: skip
    assert found.runs[0].outcome.online.value > found.runs[1].outcome.online.value
    prices = Baseline.model_validate_json(told.stdout).prices
    assert found.prices == prices
    rows = {row[0]: row[1] for row in found.table().rows}
    assert rows["bzip2"] == f"{prices[0].perplexity:.1f}" and "memories alone" in rows
    lines = [
        np.asarray(line.get_ydata(), float)
        for line in FIGURES["online-fit"].draw(found).axes[0].lines
    ]
    flat = [line[0] for line in lines if np.ptp(line) == 0]
    assert prices[1].perplexity in flat and prices[0].perplexity not in flat
    assert "memories alone" in write(found, tmp_path / "page", "").read_text()


def test_prices_of_another_corpus_are_not_shown(tmp_path: Path) -> None:
    corpus = prepared(tmp_path, simple_posts())
    price = Price(name="xz", bits=1, perplexity=2, seconds=0)
    other = Baseline(corpus="another", words=1, prices=[price])
    for content in (other.to_json(), "{", "[]"):
        (corpus.path / "baseline.json").write_text(content)
        assert read_baseline(corpus) is None
    own = other.model_copy(update={"corpus": corpus.seal()})
    (corpus.path / "baseline.json").write_text(own.to_json())
    assert read_baseline(corpus) == own
