"""The floor in the manifest: what an oracle scores that reads the corpus as a learner would."""

import math
from pathlib import Path

import numpy as np
import pytest

from conftest import INLINE
from firehose.data.corpus import Corpus, Split
from firehose.data.floor import is_known
from firehose.data.plan import Plan, make_plan
from firehose.data.prepare import prepare

SETTINGS = ["source.users=40", "source.posts=4000", "source.years=2.0"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    folder = tmp_path_factory.mktemp("floor")
    plan = make_plan(source="nature", assignments=SETTINGS)
    parted = make_plan(
        source="nature",
        assignments=[*SETTINGS, "split.small=0.4", "split.pretrain_before=2013-07-01"],
    )
    whole = prepare(plan, folder / "whole", INLINE).corpora
    return [*whole, *prepare(parted, folder / "parted", INLINE).corpora]


def texts(corpus: Corpus, split: Split) -> list[list[str]]:
    """The words of every post, from its tokens."""
    bounds = zip(split.offsets, split.offsets[1:], strict=False)
    return [corpus.vocabulary.decode(split.tokens[a:b]).split() for a, b in bounds]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_oracle_that_predicts_word_by_word_scores_the_floor(
    corpora: list[Corpus], which: int
) -> None:
    corpus = corpora[which]
    truth = Plan.of(corpus.manifest.config).source.truth()
    assert truth is not None and corpus.manifest.floor is not None
    split = corpus.splits["test"]
    nats = uniform = 0.0
    for words, user, time in zip(texts(corpus, split), split.user, split.time, strict=True):
        for place, word in enumerate([*words, "<EOT>"]):
            following = truth.next_word(corpus.users[user], int(time), words[:place])
            nats -= math.log(following[word])
            uniform += math.log(len(following))
    count = int(split.words.sum())
    floor = corpus.manifest.floor["test"]
    assert math.exp(nats / count) == pytest.approx(floor.personalized, rel=1e-9)
    assert math.exp(uniform / count) > 10 * floor.agnostic


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_agnostic_floor_mixes_the_users_of_the_corpus(
    corpora: list[Corpus], which: int
) -> None:
    corpus = corpora[which]
    nature = Plan.of(corpus.manifest.config).source
    truth = nature.truth()
    assert truth is not None and corpus.manifest.floor is not None
    splits = [corpus.splits[name] for name in ("train", "validation", "test")]
    eras = [nature.era(np.asarray(split.time)) for split in splits]  # type: ignore[attr-defined]
    shape = (len(corpus.users), int(max(era.max() for era in eras)) + 1)
    counts = np.zeros(shape)
    for split, era in zip(splits, eras, strict=True):
        np.add.at(counts, (split.user, era), 1)
    share = counts / counts.sum(1, keepdims=True)
    test, lines = splits[2], [" ".join(words) for words in texts(corpus, splits[2])]
    times = np.asarray(test.time)
    chance = np.exp([-truth.nats([user] * len(lines), times, lines) for user in corpus.users])
    prior = share[:, eras[2]] / share[:, eras[2]].sum(0)
    nats = -np.log((prior * chance).sum(0))
    expected = math.exp(nats.sum() / test.words.sum())
    assert corpus.manifest.floor["test"].agnostic == pytest.approx(expected, rel=1e-9)


def test_every_post_carries_its_floor(corpora: list[Corpus]) -> None:
    for corpus in corpora:
        assert corpus.manifest.floor is not None
        assert set(corpus.manifest.floor) == {"train", "validation", "test"}
        for name, floor in corpus.manifest.floor.items():
            split = corpus.splits[name]
            assert split.floor is not None and split.floor.shape == (len(split), 2)
            levels = np.exp(split.floor.sum(0) / split.words.sum())
            assert levels.tolist() == pytest.approx([floor.personalized, floor.agnostic])
            assert floor.personalized < floor.agnostic
    assert corpora[1].splits["pretrain"].floor is None


@pytest.mark.parametrize(
    "setting",
    ["clean.mentions=replace", "clean.drop_replies=false", 'clean.languages=["en", "de"]'],
)
def test_there_is_no_floor_where_other_posts_stay(setting: str, tmp_path: Path) -> None:
    plan = make_plan(source="nature", assignments=[*SETTINGS, setting])
    assert not is_known(plan)
    assert prepare(plan, tmp_path / "corpus", INLINE).corpora[0].manifest.floor is None
