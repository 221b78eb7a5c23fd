"""What the past costs while memories leave it out: in a game, its folder and its tables."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from firehose.data.corpus import Corpus
from firehose.experiments.ledger import totals
from firehose.game.folder import open_run
from firehose.game.forget import forget
from firehose.game.outcome import Outcome
from firehose.game.result import is_over, read_files, read_result, write_result
from firehose.game.run import make_work, play
from firehose.game.scoring import past_sample, read_costs, score_past, score_past_left_out
from firehose.game.settings import make_settings
from firehose.methods.experts.mixture import Mixture
from firehose.storage.checkpoints import Checkpoints
from small_models import TINY_GAME

MIXED = ["play.predictor=mixture", "play.predictor.hidden=8"]
FILE = "past-left-out.f32"


def played(folder: Path, corpus: Corpus, *more: str) -> Path:
    play(corpus, folder, make_settings(assignments=[*TINY_GAME, *more]))
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> Path:
    return played(tmp_path_factory.mktemp("left-out") / "mixed", small_corpus, *MIXED)


def value(run: Path, corpus: Corpus, measure: Any) -> float | None:
    job: Any = SimpleNamespace(kind="play", folder=run, corpus=corpus, seed=0)
    found = totals.__wrapped__(job, measure)
    return found.value() if found else None


def test_a_post_costs_more_where_the_memories_do_without_it(
    mixed: Path, small_corpus: Corpus
) -> None:
    plain, left_out = (
        read_costs(mixed, small_corpus, measure) for measure in ("past", "past-left-out")
    )
    assert plain.time.tolist() == left_out.time.tolist()
    assert plain.weight.tolist() == left_out.weight.tolist()
    assert left_out.perplexity() > 1.1 * plain.perplexity()
    outcome = Outcome.read(mixed)
    assert outcome.retention_left_out is not None
    assert outcome.retention_left_out.back_to[0] == pytest.approx(left_out.perplexity())
    assert outcome.retention.back_to[0] == pytest.approx(plain.perplexity())
    assert FILE in read_files(mixed)
    assert value(mixed, small_corpus, "past-left-out") == pytest.approx(left_out.perplexity())
    time = small_corpus.splits["train"].time
    is_old = left_out.time < (time[0] + time[-1]) / 2
    ratio = left_out.select(is_old).perplexity() / left_out.select(~is_old).perplexity()
    assert value(mixed, small_corpus, "forgetting-left-out") == pytest.approx(ratio)


def test_it_is_what_a_predictor_pays_that_never_remembered_a_post(
    mixed: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts as small as they can be, so that each post is left out alone."""
    monkeypatch.setattr("firehose.game.scoring.PARTS", 10**6)
    found = Checkpoints(mixed / "checkpoints").latest()
    assert found is not None
    work = make_work(open_run(mixed))
    work.restore(found.state, found.logs)
    mixture, stream = work.game.predictor, small_corpus.splits["train"]  # type: ignore[union-attr]
    assert isinstance(mixture, Mixture)
    left_out = score_past_left_out(mixture, stream)
    again = score_past(mixture, stream)  # the memory is as it was
    assert again.nats == pytest.approx(read_costs(mixed, small_corpus, "past").nats, rel=1e-5)
    every = mixture.experts[0].state()
    for number, post in enumerate(past_sample(stream.time)[0].tolist()[::9]):
        mixture.experts[0].restore(every)
        memory: Any = mixture.experts[0]
        kept = memory.posts.batch(np.flatnonzero(memory.posts.kept[: memory.posts.count]))
        others = np.arange(len(kept)) != memory.posts.find(stream.batch([post]))[0]
        memory._clear()
        memory.learn(kept.select(np.flatnonzero(others)))
        alone = mixture.pay(stream.batch([post])).nats[0]
        # The age of a match is told as if the post were there: a small part of what weighs.
        assert left_out.nats[9 * number] == pytest.approx(alone, rel=0.02)


def test_a_user_is_forgotten_in_these_costs_too(
    tmp_path: Path, mixed: Path, small_corpus: Corpus
) -> None:
    run = played(tmp_path / "run", small_corpus, *MIXED)
    assert (run / FILE).read_bytes() == (mixed / FILE).read_bytes()
    before = read_costs(run, small_corpus, "past-left-out")
    forget(run, "user1")
    after = read_costs(run, small_corpus, "past-left-out")
    others = before.user != small_corpus.users.index("user1")
    assert after.nats.tolist() == before.nats[others].tolist()
    assert 0 < len(after.nats) < len(before.nats) and is_over(run, contents=True)
    retention = Outcome.read(run).retention_left_out
    assert retention is not None
    assert retention.back_to[0] == pytest.approx(after.perplexity())


@pytest.mark.parametrize("more", [[], ["play.predictor=mixture", "play.predictor.experts=[]"]])
def test_without_memories_it_is_what_the_past_costs(
    tmp_path: Path, small_corpus: Corpus, more: list[str]
) -> None:
    run = played(tmp_path / "run", small_corpus, *more)
    assert not (run / FILE).exists() and FILE not in read_files(run)
    assert "retention_left_out" not in read_result(run)
    assert Outcome.read(run).retention_left_out is None
    for measure in ("past", "forgetting"):
        plain = value(run, small_corpus, measure)
        assert plain is not None and value(run, small_corpus, f"{measure}-left-out") == plain


def test_an_older_result_does_not_have_it(
    mixed: Path, small_corpus: Corpus, tmp_path: Path
) -> None:
    older = Outcome.read(mixed).public()
    del older["retention_left_out"]
    found = Outcome.model_validate(older)
    assert found.public() == older
    assert Outcome.mean([found, Outcome.read(mixed)]).retention_left_out is None
    both = Outcome.mean([Outcome.read(mixed)] * 2).retention_left_out
    assert both is not None and np.isfinite(both.bucket).all()
    (tmp_path / "run").mkdir()
    for name in ("run.json", "result.json"):
        text = (mixed / name).read_text()
        (tmp_path / "run" / name).write_text(text)
    files = {name: seals for name, seals in read_files(mixed).items() if name != FILE}
    write_result(tmp_path / "run", older, files)
    assert value(tmp_path / "run", small_corpus, "past-left-out") is None
    assert value(tmp_path / "run", small_corpus, "forgetting-left-out") is None
