"""A model on disk: what comes back, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import contents, prepared, simple_posts
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.models.personal import Architecture
from firehose.models.store import find_model, load, save
from firehose.models.users import NOBODY
from firehose.storage import seals, tensors
from firehose.storage.seals import File, seal_of
from small_models import awake, batch_of, tiny, trained_on


@pytest.fixture
def saved(tmp_path: Path, small_corpus: Corpus) -> Path:
    save(trained_on(small_corpus), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("architecture", ["agnostic", "encoder", "decoder", "adapters"])
def test_what_is_saved_comes_back(
    tmp_path: Path, small_corpus: Corpus, architecture: Architecture
) -> None:
    trained = trained_on(small_corpus, architecture)
    save(trained, tmp_path / "model")
    again = load(tmp_path / "model", small_corpus)
    posts = small_corpus.splits["test"].between(0, 9)
    assert again.model.pay(posts).nats.tolist() == trained.model.pay(posts).nats.tolist()
    assert again.model.plan == trained.model.plan
    assert again.encoder.vocabulary.model == trained.encoder.vocabulary.model
    assert again.origin == {"kind": "by hand"}
    assert not again.model.training


def test_users_are_known_by_name(tmp_path: Path, saved: Path, small_corpus: Corpus) -> None:
    trained = trained_on(small_corpus)
    posts = [post for post in simple_posts(users=4) if post.user != "user0"]
    vocabulary = {"model": str(saved / "vocabulary.model")}
    other = prepared(tmp_path, posts, vocabulary=vocabulary)
    assert other.users[:2] == ["user1", "user2"]  # 0 and 1 there, 1 and 2 here
    again = load(saved, other)
    assert again.number("user1") == NOBODY  # forgotten before it was saved
    assert again.number("user3") == NOBODY  # never seen
    found = {
        name: again.model.users.take(np.array([again.number(name)]), learn=False).vectors
        for name in ("user0", "user2")
    }
    for name, vectors in found.items():
        number = np.array([small_corpus.users.index(name)])
        expected = trained.model.users.take(number, learn=False).vectors
        assert torch.equal(vectors, expected)
    assert set(load(saved).known()) >= {"user0", "user2"}


def test_texts_cost_what_their_posts_in_the_corpus_cost(saved: Path, small_corpus: Corpus) -> None:
    by_moment = {post.time: post for post in simple_posts()}
    split = small_corpus.splits["test"].between(0, 9)
    posts = [by_moment[time] for time in split.time.tolist()]
    alone, within = load(saved), load(saved, small_corpus)
    expected = within.model.pay(split)
    for trained in (alone, within):
        paid = trained.pay(posts)
        np.testing.assert_allclose(paid.nats, expected.nats, rtol=0, atol=1e-5)
        assert paid.words.tolist() == expected.words.tolist()
    strangers = alone.pay([post._replace(user="somebody new") for post in posts])
    nobody = alone.model.pay(replace(split, user=np.full(len(split), -1, np.int32)))
    assert strangers.nats.tolist() == nobody.nats.tolist()
    assert np.abs(strangers.nats - expected.nats).max() > 1e-4
    assert len(alone.users) == 2  # user1 was forgotten, and the stranger left no trace


def test_a_run_s_folder_stands_for_the_model_in_it(tmp_path: Path, small_corpus: Corpus) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(FirehoseError, match="run is not a model: no"):
        load(tmp_path / "run")
    save(trained_on(small_corpus), tmp_path / "run/model")
    assert find_model(tmp_path / "run") == find_model(tmp_path / "run/model")
    assert load(tmp_path / "run").known() == load(tmp_path / "run/model").known()


def test_a_corpus_of_other_words_is_refused(
    tmp_path: Path, saved: Path, small_corpus: Corpus
) -> None:
    size = small_corpus.vocabulary.size - 1
    other = prepared(tmp_path, simple_posts(), vocabulary={"size": size})
    with pytest.raises(FirehoseError, match=r"different vocabularies; prepare .* --vocab-model"):
        load(saved, other)


def cut(path: Path) -> None:
    file = path / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def cut_unnoticed(path: Path) -> None:
    cut(path)
    reseal(path)


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = path / "weights.safetensors"
    weights = {name: each.clone() for name, each in tensors.read(file).items()}
    change(weights)
    tensors.write(file, weights)
    reseal(path)


def reseal(path: Path, **changed: object) -> None:
    """Let a card fit the files, and itself, as if all of it had been written so."""
    card = json.loads((path / "model.json").read_text()) | changed
    del card["seal"]
    card["files"] = {name: File.of(path / name).model_dump() for name in card["files"]}
    (path / "model.json").write_text(json.dumps(card | {"seal": seal_of(card)}))


def zeros(path: Path) -> None:
    file = path / "weights.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000] + bytes(1000))


def altered(path: Path) -> None:
    card = json.loads((path / "model.json").read_text())
    card["encoder"]["mentions"] = "replace"
    (path / "model.json").write_text(json.dumps(card))


def planned(**changed: int) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        plan = json.loads((path / "model.json").read_text())["model"]
        own = {name: value for name, value in changed.items() if name in plan}
        shape = plan["shape"] | {n: v for n, v in changed.items() if n not in plan}
        reseal(path, model=plan | own | {"shape": shape})

    return harm


def not_a_number(path: Path) -> None:
    rewrite(path, lambda weights: weights["shared.output_bias"].fill_(float("nan")))


def another_size(path: Path) -> None:
    def change(weights: dict[str, torch.Tensor]) -> None:
        weights["shared.embedding"] = weights["shared.embedding"][:-1]

    rewrite(path, change)


def another_architecture(path: Path) -> None:
    rewrite(path, lambda weights: weights.__delitem__("mlps.2.norm.bias"))


def another_schema(path: Path) -> None:
    card = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps(card | {"schema_version": 1}))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (cut, r"is damaged: weights.safetensors has [\d,]+ bytes instead of"),
        (cut_unnoticed, "is cut or damaged"),
        (not_a_number, "shared.output_bias holds values that are not finite"),
        (another_size, r"of another size: shared.embedding is \d+ × 16 there"),
        (another_architecture, "has no mlps.2.norm.bias: it is of another architecture"),
        (another_schema, "has model schema 1, this Firehose reads 3"),
        (zeros, "weights.safetensors does not match its checksum; copy the model again"),
        (altered, r"is damaged: model\.json was altered; copy the model again"),
        (lambda path: reseal(path, users=-1), r"model\.json is not the file of a model"),
        (lambda path: reseal(path, users=7), "do not hold the 7 users that model.json names"),
        (lambda path: reseal(path, pieces=9), "do not hold the 9 pieces"),
        (planned(layers=10**9), "do not hold the 1,000,000,000 layers"),
        (planned(d_model=10**9), "do not hold the 1,000,000,000 × [0-9,]+ weights"),
        (planned(d_inner=10**12), "do not hold the 16 × 1,000,000,000,000 weights"),
        (planned(d_user=10**12), "do not hold the 16 × 1,000,000,000,000 weights"),
        (lambda path: (path / "users.parquet").unlink(), "users.parquet is missing"),
        (lambda path: (path / "model.json").write_text("{"), "is not the file of a model"),
        (lambda path: (path / "model.json").unlink(), "is not a model: no model.json in it"),
    ],
)
def test_what_is_harmed_is_refused(
    saved: Path, harm: Callable[[Path], object], sentence: str
) -> None:
    harm(saved)
    with pytest.raises(FirehoseError, match=sentence):
        load(saved)


def test_a_model_of_the_schema_before_is_still_read(saved: Path) -> None:
    card = json.loads((saved / "model.json").read_text())
    del card["seal"]
    (saved / "model.json").write_text(json.dumps(card | {"schema_version": 2}))
    assert load(saved).known()
    (saved / "model.json").write_text(json.dumps(card))
    with pytest.raises(FirehoseError, match="is not the file of a model"):
        load(saved)


def test_a_large_model_is_compared_once_and_again_when_it_was_touched(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    whole = seals.sha256

    def counted(path: Path) -> str:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(seals, "sha256", counted)
    monkeypatch.setattr(seals, "SMALL", 0)
    monkeypatch.setattr(seals, "SETTLED", 10**15)
    load(saved)
    load(saved)
    assert len(read) == 6  # changed a moment ago: one more change would go unnoticed
    monkeypatch.setattr(seals, "SETTLED", 0)
    load(saved)
    del read[:]
    load(saved)
    assert read == []
    zeros(saved)
    with pytest.raises(FirehoseError, match="does not match its checksum"):
        load(saved)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")  # where nothing can be written
    with pytest.raises(FirehoseError, match="does not match its checksum"):
        load(saved)


def test_a_model_that_is_replaced_while_it_is_read_is_not_mixed_with_the_other(
    saved: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = tensors.read

    def late(path: Path) -> dict[str, torch.Tensor]:
        save(trained_on(small_corpus, "encoder"), saved, replace=True)
        return read(path)

    monkeypatch.setattr(tensors, "read", late)
    with pytest.raises(FirehoseError, match="was replaced while it was read; try again"):
        load(saved)


def test_nothing_is_overwritten_unasked(saved: Path, small_corpus: Corpus) -> None:
    before = contents(saved)
    with pytest.raises(FirehoseError, match="exists already"):
        save(trained_on(small_corpus), saved)
    broken = trained_on(small_corpus)
    with torch.no_grad():
        broken.model.shared.embedding[0, 0] = float("inf")
    with pytest.raises(FirehoseError, match="not finite"):
        save(broken, saved, replace=True)
    (saved.parent / "mine").mkdir()
    with pytest.raises(FirehoseError, match="exists and is not a model"):
        save(trained_on(small_corpus), saved.parent / "mine", replace=True)
    assert contents(saved) == before


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match="does not exist; make one"):
        load(tmp_path / "none")


def test_a_table_of_users_comes_back_to_the_same_bits() -> None:
    model = awake(tiny("adapters"))
    model.users.forget(2)
    other = tiny("adapters")
    other.users.restore(model.users.state())
    batch = batch_of([[1, 4, 5, 2], [1, 9, 2]], [2, 40])
    for one in (model, other):
        one.eval()
        one.loss(batch)  # both are new: they move in at the mean
    mine, theirs = model.users.state(), other.users.state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_prompts_are_treated_as_posts_were(tmp_path: Path) -> None:
    cleaning = {"mentions": "replace", "max_characters": 99}
    posts = [post._replace(text=f"{post.text} @{post.user}") for post in simple_posts()]
    corpus = prepared(tmp_path, posts, clean=cleaning)
    save(trained_on(corpus), tmp_path / "model")
    card = json.loads((tmp_path / "model/model.json").read_text())
    assert card["encoder"] == cleaning
    encoder = load(tmp_path / "model").encoder
    assert encoder.vocabulary.decode(encoder.prompt("the @fox")) == "the <MENTION>"
    with pytest.raises(FirehoseError, match="has 100 characters, but a post has at most 99"):
        encoder.prompt("x" * 100)
