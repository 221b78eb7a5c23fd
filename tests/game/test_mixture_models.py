"""A mixture with its model: saved, opened, evaluated, writing, suggesting, learning, forgetting."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from conftest import contents, prepared, simple_posts
from firehose.batch import Batch
from firehose.cli.app import app
from firehose.data.corpus import Corpus
from firehose.data.post import Post
from firehose.errors import FirehoseError, Stopped
from firehose.game.assembly import Game
from firehose.game.evaluate import evaluate
from firehose.game.folder import open_run
from firehose.game.forget import forget
from firehose.game.live import Trained, load
from firehose.game.round import Round
from firehose.game.run import make_work, play, resume
from firehose.game.scoring import read_costs
from firehose.game.settings import make_settings
from firehose.generation.generate import generate
from firehose.generation.mixed import MixedDecoder
from firehose.generation.sampling import Sampling
from firehose.generation.suggest import Asked, Suggester, suggest
from firehose.methods.experts.mixture import Mixture
from firehose.models import store
from firehose.storage.checkpoints import Checkpoints
from small_models import TINY_GAME, trained_on

MIXED = ["play.predictor=mixture", "play.predictor.hidden=8"]
AVERAGED = ["play.optimizer=averaged", "play.predictor.weight_sets=2"]
POSTS = [Post("user0", "the quick brown fox"), Post("user1", "a lazy dog in the house")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_corpus: Corpus) -> Path:
    folder = tmp_path_factory.mktemp("mixed") / "run"
    play(small_corpus, folder, make_settings(assignments=TINY_GAME + MIXED + AVERAGED))
    return folder


@pytest.fixture
def live(tmp_path: Path, small_corpus: Corpus) -> Trained:
    """A model that has learned nothing, with an empty mixture."""
    store.save(trained_on(small_corpus), tmp_path / "plain")
    return load(tmp_path / "plain", playing=make_settings("laptop", MIXED).play)


def test_what_is_saved_pays_what_the_run_paid(run: Path, small_corpus: Corpus) -> None:
    found = evaluate(run, small_corpus, "test", others=1)
    assert found.own.nats == pytest.approx(read_costs(run, small_corpus, "test").nats, rel=1e-4)
    assert found.crossed is not None and found.crossed.perplexity() > found.own.perplexity()
    model = store.load(run)
    with pytest.raises(FirehoseError, match=r"firehose\.load"):
        model.pay(POSTS)
    (run / "copy").mkdir(exist_ok=True)
    for name, content in contents(run / "model").items():
        (run / "copy" / name).write_bytes(content)
    (run / "copy" / "predictor.json").write_text("{}")
    with pytest.raises(FirehoseError, match="damaged"):
        load(run / "copy")


def test_opened_and_saved_again_it_is_the_same(run: Path, tmp_path: Path) -> None:
    store.save(load(run), tmp_path / "untouched")
    assert contents(tmp_path / "untouched") == contents(run / "model")
    model = load(run)
    before = model.pay(POSTS).nats
    assert model.learn(POSTS).nats.tolist() == before.tolist()
    store.save(model, tmp_path / "learned")
    again = load(tmp_path / "learned")
    assert again.pay(POSTS).nats == pytest.approx(model.pay(POSTS).nats, rel=1e-6)
    assert again.pay(POSTS).nats.sum() < before.sum()


def test_users_may_have_other_numbers(run: Path, tmp_path: Path) -> None:
    """In another corpus the same users come in another order."""
    others = [post._replace(user=f"user{2 - int(post.user[4:])}") for post in simple_posts()]
    new = [post._replace(user="user9", id=f"n{post.id}") for post in others[::3]]
    vocabulary = {"model": str(run / "model" / "vocabulary.model")}
    corpus = prepared(tmp_path, new + others, vocabulary=vocabulary)
    assert corpus.users.index("user0") != store.load(run).users.number("user0")
    numbered = load(run, corpus, min_users=1)
    assert numbered.pay(POSTS).nats == pytest.approx(load(run, min_users=1).pay(POSTS).nats)


def nats_by_decoding(model: Trained, tokens: Sequence[int], user: str) -> list[float]:
    """What each token but the first costs, when the text is read token by token."""
    assert model.speaker is not None
    decoder = MixedDecoder(model.model, model.speaker, model.number(user))
    nats = []
    for token, target in pairwise(tokens):
        log_probs = decoder.advance(torch.tensor([[token]]))
        assert float(log_probs.exp().sum()) == pytest.approx(1, abs=1e-5)
        nats.append(-float(log_probs[0, target]))
    return nats


@pytest.mark.parametrize("min_users", [1, 3])
def test_writing_piece_by_piece_costs_what_is_paid(run: Path, min_users: int) -> None:
    model = load(run, min_users=min_users)
    assert model.is_silent == (min_users == 3)
    for post in [*POSTS, Post("nobody", "jumps over the dog")]:
        tokens = model.encoder.encode([post], model.users, grow=False).tokens.tolist()
        nats = sum(nats_by_decoding(model, tokens, post.user))
        assert nats == pytest.approx(model.pay([post]).nats[0], rel=1e-5)
    for sampling in (Sampling(beam=3), Sampling(seed=1)):
        (text,) = generate(model, "the quick", "user0", sampling)
        written = len(text.tokens) - len(model.encoder.prompt("the quick"))
        nats = sum(nats_by_decoding(model, text.tokens, "user0")[-written:])
        assert text.nats == pytest.approx(nats, rel=1e-5)
    assert sum(found.probability for found in suggest(model, "the", "user0", 5)) <= 1 + 1e-9


def test_rows_are_kept_copied_and_rewound(run: Path) -> None:
    model = load(run)
    assert model.speaker is not None
    decoder = MixedDecoder(model.model, model.speaker, 1, 2)
    tokens = torch.tensor([[1, 7, 9], [1, 8, 4]])
    expected = decoder.advance(tokens)
    decoder.rewind(1)
    decoder.keep([1, 0, 1])
    found = decoder.advance(tokens[[1, 0, 1], 1:])
    assert (decoder.rows, decoder.length) == (3, 3)
    assert torch.allclose(found, expected[[1, 0, 1]], atol=1e-6)


def test_several_who_ask_together_are_told_what_each_is_told_alone(run: Path) -> None:
    model = load(run)
    questions = [Asked("the quick", "user0", 3), Asked("over", None, 2), Asked("", "user1", 2, "j")]
    together = Suggester(model).suggest_all(questions)
    for asked, found in zip(questions, together, strict=True):
        assert not isinstance(found, FirehoseError)
        alone = Suggester(model).suggest(*asked)
        assert [each.word for each in found] == [each.word for each in alone]
        likely = [each.probability for each in alone]
        assert [each.probability for each in found] == pytest.approx(likely, rel=1e-4)


def test_a_new_word_is_suggested_to_its_user_only(live: Trained) -> None:
    post = Post("zoe", "over the brown fox")
    before = {each.word: each.probability for each in suggest(live, "over the", "zoe", 20)}
    live.learn([post])
    word, probability = suggest(live, "over the", "zoe", 1)[0]
    assert word == "brown" and probability > 10 * before.get("brown", 0.001)
    for other in ("user0", "somebody", None):
        assert suggest(live, "over the", other, 1)[0].word != "brown"
    live.forget("zoe")
    assert suggest(live, "over the", "zoe", 1)[0].word != "brown"


def test_words_of_others_are_told_when_enough_users_wrote_them(
    tmp_path: Path, live: Trained
) -> None:
    memory = ['play.predictor.experts=[{kind="memory",min_users=3}]']
    safe = load(tmp_path / "plain", playing=make_settings("laptop", MIXED + memory).play)
    for number, user in enumerate(("ann", "bob", "cleo")):
        assert suggest(safe, "over the", "somebody", 1)[0].word != "brown", number
        for model in (live, safe):
            model.learn([Post(user, "over the brown fox")])
    assert not safe.is_silent and live.is_silent
    assert suggest(safe, "over the", "somebody", 1)[0].word == "brown"
    assert suggest(live, "over the", "somebody", 1)[0].word != "brown"
    open_to_all = load(tmp_path / "plain", playing=make_settings("laptop", MIXED).play, min_users=1)
    open_to_all.learn([Post("ann", "over the brown fox")])
    assert suggest(open_to_all, "over the", "somebody", 1)[0].word == "brown"


def test_the_command_line_says_what_is_not_told(run: Path) -> None:
    asked = ["suggest", str(run), "--prompt", "over the", "--user", "user0"]
    silent = CliRunner().invoke(app, asked)
    assert silent.exit_code == 0 and "--min-users 1 lets it tell everything" in silent.stderr
    told = CliRunner().invoke(app, [*asked, "--min-users", "1"])
    assert told.exit_code == 0 and not told.stderr and told.stdout != silent.stdout


def test_stopped_and_resumed_it_ends_with_the_same_bits(
    run: Path, tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Game.rounds

    def interrupted(self: Game, stream: Iterable[Batch]) -> Iterator[Round]:
        for played in whole(self, stream):
            if self.played == 4:
                signal.raise_signal(signal.SIGINT)
            yield played

    monkeypatch.setattr(Game, "rounds", interrupted)
    with pytest.raises(Stopped, match="after round 4"):
        play(small_corpus, tmp_path / "run", open_run(run).settings)
    resume(tmp_path / "run")
    made, expected = (contents(folder / "model") for folder in (tmp_path / "run", run))
    assert {**made, "model.json": b""} == {**expected, "model.json": b""}  # it names the machine
    for name in ("paid.f32", "test.f32", "past.f32", "past-left-out.f32"):
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes()


def remembered(state: dict[str, Any]) -> Any:
    return state["predictor"]["experts"]["0"]


def test_a_run_forgets_a_user_in_checkpoint_and_model(tmp_path: Path, small_corpus: Corpus) -> None:
    folder = tmp_path / "run"
    play(small_corpus, folder, make_settings(assignments=TINY_GAME + MIXED))
    number = small_corpus.users.index("user1")
    erased = forget(folder, "user1")
    assert erased["things a predictor kept"] == 18
    found = Checkpoints(folder / "checkpoints").latest()
    assert found is not None
    work = make_work(open_run(folder))
    mixture = work.game.predictor  # type: ignore[union-attr]
    assert isinstance(mixture, Mixture)
    stream = small_corpus.splits["train"]
    mixture.prime([stream.batch(np.flatnonzero(np.asarray(stream.user) != number))])
    never: Any = mixture.experts[0].state()  # a memory that never saw the user
    saved = store.load(folder).saved
    assert saved is not None and "user1" not in saved.users
    for state in (remembered(found.state), saved.state["predictor"]["experts"]["0"]):
        assert number not in state["posts"]["user"]
        assert state["posts"]["tokens"].tolist() == never["posts"]["tokens"].tolist()
        assert state["posts"]["owner"].tolist() == never["posts"]["owner"].tolist()
        assert _rows(state["counts"]) == _rows(never["counts"])
    load(folder).pay(POSTS)


def test_of_a_forgotten_user_no_set_of_weights_keeps_a_vector(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    """Others keep theirs, whatever their rows are afterwards."""
    folder, fast = tmp_path / "run", ["play.rule.user_rate=10"]
    play(small_corpus, folder, make_settings(assignments=TINY_GAME + MIXED + AVERAGED + fast))
    before = vectors_beside(folder)
    erased = forget(folder, before.users[0])
    assert erased["vectors"] == 1
    after = vectors_beside(folder)
    assert sorted(after.users) == sorted(before.users[1:])
    for user, vector in zip(after.users, after.vectors, strict=True):
        assert torch.equal(vector, before.vectors[before.users.index(user)])
    assert after.total == pytest.approx(after.vectors.double().sum(0), abs=1e-5)
    assert load(folder).game.predictor.weights[1].name == "raw"


class Beside(NamedTuple):
    """The vectors of users in the second set of weights that a model was saved with."""

    users: list[str]
    vectors: torch.Tensor
    total: torch.Tensor


def vectors_beside(folder: Path) -> Beside:
    model = store.load(folder)
    assert model.saved is not None
    rows = model.saved.state["weights"]["0"]["rows"]
    return Beside(model.known(), rows["average"], rows["total"])


@pytest.mark.parametrize("architecture", ["adapters", "agnostic"])
def test_an_evaluation_knows_whom_only_memories_know(
    tmp_path: Path, small_corpus: Corpus, architecture: str
) -> None:
    kinds = ["play.optimizer=frozen", f"model.architecture={architecture}"]
    play(small_corpus, tmp_path / "run", make_settings(assignments=TINY_GAME + MIXED + kinds))
    found = evaluate(tmp_path / "run", small_corpus, "test", others=1)
    assert found.unknown == 0
    assert found.crossed is not None and found.crossed.perplexity() > found.own.perplexity()


def test_a_posterior_pays_but_does_not_write(tmp_path: Path, small_corpus: Corpus) -> None:
    """What it would write with depends on what the text has cost so far."""
    weighed = [*MIXED, "play.predictor.weighing=posterior"]
    play(small_corpus, tmp_path / "run", make_settings(assignments=TINY_GAME + weighed))
    model = load(tmp_path / "run")
    assert model.pay(POSTS).nats.min() > 0
    for write in (lambda: generate(model, "the", "user0", Sampling()),
                  lambda: suggest(model, "the", "user0", 3)):  # fmt: skip
        with pytest.raises(FirehoseError, match="weighing=network"):
            write()


def _rows(counts: dict[str, Any]) -> list[list[tuple[int, ...]]]:
    """All rows of both tables, in order."""
    tables = []
    for table in (counts["pairs"], counts["contexts"]):
        columns = [each.ravel() for each in (table["words"], *table["columns"].values())]
        taken = columns[0] != 0
        tables.append(sorted(zip(*(column[taken].tolist() for column in columns), strict=True)))
    return tables
