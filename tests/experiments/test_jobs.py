"""Jobs: known by what they are, refused before anything runs."""

import re
from pathlib import Path

import pytest

from conftest import prepared, simple_posts
from firehose.config import RECIPES
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments.jobs import Job, make_jobs, with_starts
from firehose.experiments.naming import label
from firehose.experiments.recipe import Experiment, read_experiments
from firehose.experiments.reproduce import listing, make_schedule
from firehose.game.assembly import make_game
from firehose.game.settings import make_settings
from firehose.methods.optimizers.congrad import ConGraD
from small_experiments import RECIPE, tiny_scale

LEARNER = """
from firehose.methods.learners.online_only import OnlineOnly

class Mine(OnlineOnly):
    pass
"""


def jobs_of(text: str, corpus: Corpus, folder: Path, seeds: int = 1) -> list[Job]:
    (folder / "mine.toml").write_text(text)
    (experiment,) = read_experiments(folder / "mine.toml", trust=True).values()
    return make_jobs(experiment, corpus, tiny_scale(folder), seeds, folder / "runs")


def test_every_combination_once_a_seed(tmp_path: Path, small_corpus: Corpus) -> None:
    jobs = jobs_of(RECIPE, small_corpus, tmp_path, seeds=2)
    assert len(jobs) == (2 * 2 + 1) * 2 == len({job.key for job in jobs})
    assert [job.seed for job in jobs] == [0, 1] * 5
    plays = [(job.kind, job.settings.play) for job in jobs]
    settings = [(kind, play.optimizer.kind, play.steps) for kind, play in plays]
    assert settings[::2] == [
        ("play", "online-gd", 1),
        ("play", "online-gd", 2),
        ("play", "congrad", 1),
        ("play", "congrad", 2),
        ("offline", "congrad", 2),
    ]


def test_the_same_run_of_two_experiments_is_one_job(tmp_path: Path, small_corpus: Corpus) -> None:
    first = jobs_of(RECIPE, small_corpus, tmp_path)
    again = jobs_of('title = "x"\n[[runs]]\nset = { "play.steps" = 2 }', small_corpus, tmp_path)
    assert again[0].key in {job.key for job in first}
    assert len(with_starts(first + again)) == len(first)


def test_runs_are_known_by_their_names_and_done_under_any(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    named = '[[runs]]\nname = "a: {}"\nset = {{ "play.steps" = {} }}\n'
    (plain,) = jobs_of('title = "x"\n[[runs]]\nset = { "play.steps" = 2 }', small_corpus, tmp_path)
    text = 'title = "x"\n' + named.format("one", 1) + named.format("two", 2)
    one, two = jobs_of(text, small_corpus, tmp_path)
    assert two.key == plain.key and two.name == plain.name
    assert label(two.facts, ["name"]) == "a: two" and "name" not in plain.facts
    (experiment,) = read_experiments(tmp_path / "mine.toml").values()
    assert experiment.varies() == ["name"]
    assert one.key != two.key


@pytest.mark.parametrize(
    "change",
    [
        "play.rule.rate = 0.5",
        "play.rule = 'sgd'",
        "play.optimizer.validation.kind = 'fifo'",
        "play.optimizer.restore_moments = true",
        "play.memory.posts = 7",
        "model.d_user = 3",
        "play.seed = 9",
    ],
)
def test_whatever_changes_the_result_changes_the_key(
    tmp_path: Path, small_corpus: Corpus, change: str
) -> None:
    name, _, value = change.partition(" = ")
    run = 'title = "x"\n[[runs]]\nset = {{ {} }}'
    (one,) = jobs_of(run.format(""), small_corpus, tmp_path)
    if name == "play.seed":
        other = jobs_of(run.format(""), small_corpus, tmp_path, seeds=2)[1]
    else:
        (other,) = jobs_of(run.format(f'"{name}" = {value}'), small_corpus, tmp_path)
    assert one.key != other.key
    # … and what does not, does not: an offline run has no learner.
    offline = 'title = "x"\n[[runs]]\nkind = "offline"\nset = {{ {} }}'
    (one,) = jobs_of(offline.format(""), small_corpus, tmp_path)
    (other,) = jobs_of(offline.format('"play.learner" = "a-gem"'), small_corpus, tmp_path)
    assert one.key == other.key


def test_another_corpus_is_another_job_but_the_same_one_elsewhere_is_not(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    same = prepared(tmp_path / "a", simple_posts())
    other = prepared(tmp_path / "b", simple_posts(users=4))
    keys = [jobs_of(RECIPE, corpus, tmp_path)[0].key for corpus in (small_corpus, same, other)]
    assert keys[0] == keys[1] != keys[2]


def test_a_changed_learner_of_the_user_s_is_another_job(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = 'title = "x"\n[[runs]]\nset = { "play.learner" = "mine.py:Mine" }'
    (tmp_path / "mine.py").write_text(LEARNER)
    (before,) = jobs_of(run, small_corpus, tmp_path)
    assert before.name.startswith("Mine-congrad-2-steps-seed-0-")
    (tmp_path / "mine.py").write_text(LEARNER + "    # better\n")
    (after,) = jobs_of(run, small_corpus, tmp_path)
    assert before.key != after.key


def test_games_begin_with_a_pretrained_model_where_there_is_one(tmp_path: Path) -> None:
    posts = simple_posts(posts=32)
    corpus = prepared(tmp_path, posts, split={"pretrain_before": "2014-05-14"})
    assert corpus.manifest.posts["pretrain"]
    jobs = with_starts(jobs_of(RECIPE, corpus, tmp_path))
    assert [job.kind for job in jobs] == ["pretrain", *["play"] * 4, "offline"]
    start, game, oracle = jobs[0], jobs[1], jobs[-1]
    assert game.start and oracle.start and game.start.key == oracle.start.key == start.key
    for job in (game, oracle):
        command = job.command()
        assert job.left() == command
        assert command[0] == job.kind
        assert command[command.index("--from") + 1] == str(start.folder)
        job.folder.mkdir(parents=True)
        (job.folder / "run.json").write_text("{}")
        assert job.left() == ["resume", str(job.folder), "--corpus", str(corpus.path)]
    assert "--from" not in start.command() and start.command()[0] == "pretrain"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("online-gd", "online-gb"), "no optimizer 'online-gb': did you mean 'online-gd'"),
        (('"play.steps" = [1, 2]', '"play.steps" = [0]'), "play.steps = 0 in 'Steps'"),
        (('"play.steps" = [1, 2]', '"play.steps" = ["many"]'), "play.steps = 'many' in"),
        (('"play.steps" = [1, 2]', '"play.step" = [1]'), "Unknown key 'play.step'"),
        (('kind = "offline"', 'kind = "onlin"'), "is not a choice: did you mean"),
        (('"play.steps" = [1, 2]', '"play.learner" = ["a-gen"]'), "no learner 'a-gen'"),
        (('columns = ["play.steps"]', ""), "2 different runs share one cell"),
        (('columns = ["play.steps"]', 'columns = ["play.stops"]'), "no run has a setting 'play.st"),
        (('within = ["play.steps"]', 'within = ["play.stops"]'), "did you mean 'play.steps'"),
        (('"play.steps" = [1, 2]', '"play.seed" = [1, 2]'), "seeds are counted from 0"),
        (('title = "Steps"', 'title = "Steps"\nexperiments = ["test"]'), "both experiments and"),
        (
            ('lower = { "play.optimizer" = "congrad" }', 'lower = { "play.rate" = 7 }'),
            "no run fits",
        ),
        (('title = "Steps"', 'title = "Steps"\ntitel = 1'), "Unknown key 'titel'"),
        (('title = "Steps"', ""), "title is missing in"),
        (('draw = "compute"', 'draw = "a horse"'), "figures.0.draw = 'a horse'"),
        (("[[claims]]", "[[claim]]"), "Unknown key 'claim'"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused_before_anything_runs(
    tmp_path: Path, small_corpus: Corpus, change: tuple[str, str], sentence: str
) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE.replace(*change))
    with pytest.raises(FirehoseError, match=re.escape(sentence)):
        make_schedule(
            tmp_path / "mine.toml", small_corpus, tmp_path / "out", tiny_scale(tmp_path), 1
        )
    assert not (tmp_path / "out").exists()


def test_what_does_not_exist_is_refused(tmp_path: Path, small_corpus: Corpus) -> None:
    scale = tiny_scale(tmp_path)
    with pytest.raises(FirehoseError, match="did you mean 'test'"):
        make_schedule("tests", small_corpus, scale=scale)
    with pytest.raises(FirehoseError, match="Cannot read"):
        make_schedule(tmp_path / "no.toml", small_corpus, scale=scale)
    with pytest.raises(FirehoseError, match="none"):
        make_schedule("test", tmp_path / "none", scale=scale)
    with pytest.raises(FirehoseError, match="no recipe 'lapto': did you mean 'laptop'"):
        make_schedule("test", small_corpus, scale="lapto")


def test_what_a_pretrained_model_hands_on_can_be_varied(tmp_path: Path) -> None:
    posts = simple_posts(posts=32)
    corpus = prepared(tmp_path, posts, split={"pretrain_before": "2014-05-14"})
    for setting, values in (("model.shape.layers", "[1, 2]"), ("pretrain.epochs", "[1, 2]")):
        recipe = f'title = "Depth"\n[[runs]]\n[runs.vary]\n"{setting}" = {values}\n'
        one, two = jobs_of(recipe + f'[[tables]]\nrows = ["{setting}"]', corpus, tmp_path)
        assert one.key != two.key and one.start and two.start and one.start.key != two.start.key
        assert one.facts[setting] != two.facts[setting]
    exact, rough = jobs_of(
        'title = "Bits"\n[[runs]]\n[runs.vary]\n"compute.precision" = ["auto", "bfloat16"]\n'
        '[[tables]]\nrows = ["compute.precision"]',
        corpus,
        tmp_path,
    )
    assert exact.key != rough.key
    assert "compute" not in exact.identity and rough.identity["compute"]["precision"] == "bfloat16"


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_every_experiment_of_the_paper_fits_every_scale(
    tmp_path: Path, small_corpus: Corpus, scale: str
) -> None:
    schedule = make_schedule("all", small_corpus, tmp_path, scale, seeds=2)
    assert len(schedule.parts) == 7
    assert sum(len(part.jobs) for part in schedule.parts) > len(schedule.jobs)  # some are shared
    names = [job.name for job in schedule.jobs]
    assert len(names) == len(set(names))


def test_the_list_has_all_recipes() -> None:
    names = {path.stem for path in (RECIPES / "experiments").glob("*.toml")}
    assert {str(row[0]) for row in listing().rows} == names
    assert {"architectures", "test", "online-fit", "retention", "steps", "all"} <= names
    assert {"validation-size", "validation-strategy", "tuning"} <= names


def test_settings_of_congrad_are_nothing_to_online_gd(tmp_path: Path, small_corpus: Corpus) -> None:
    """Of a scale that is made for ConGraD, whatever it says about validation."""
    changes: tuple[list[str], ...] = (
        [],
        ["play.optimizer.validation.per_user=3"],
        ["play.optimizer.allow_no_step=false"],
    )

    def keys(optimizer: str) -> list[str]:
        text = f'title = "x"\n[[runs]]\nset = {{ "play.optimizer" = "{optimizer}" }}'
        (tmp_path / "x.toml").write_text(text)
        (experiment,) = read_experiments(tmp_path / "x.toml").values()
        found = []
        for changed in changes:
            scale = tiny_scale(tmp_path)
            scale.write_text(make_settings(scale, changed).to_toml())
            (job,) = make_jobs(experiment, small_corpus, scale, 1, tmp_path / "runs")
            found.append(job.key)
        return found

    assert len(set(keys("online-gd"))) == 1
    assert len(set(keys("congrad"))) == 3


@pytest.mark.parametrize("as_path", [True, False])
def test_a_recipe_may_speak_of_all_users(
    tmp_path: Path, small_corpus: Corpus, as_path: bool
) -> None:
    (tmp_path / "x.toml").write_text(
        'title = "x"\n[[runs]]\nset = { "play.memory.posts" = "{users}" }\n'
        '[runs.vary]\n"play.steps" = [1, 2]'
    )
    corpus = small_corpus.path if as_path else small_corpus
    schedule = make_schedule(tmp_path / "x.toml", corpus, tmp_path, tiny_scale(tmp_path), 1)
    for job in schedule.jobs:
        assert job.settings.public()["play"]["memory"] == {"kind": "stratified", "posts": 3}


def test_strategies_of_validation_are_compared_at_equal_sizes(
    tmp_path: Path, small_corpus: Corpus
) -> None:
    """From the first batch on, whatever the strategy: one post for every user of the corpus."""
    scale = tiny_scale(tmp_path)
    jobs = make_schedule("validation-strategy", small_corpus.path, tmp_path, scale, 1).jobs
    sizes = {}
    for job in jobs:
        game = make_game(job.corpus, job.settings)
        assert isinstance(game.optimizer, ConGraD)
        held = game.optimizer.validation
        sizes[job.facts["play.optimizer.validation.kind"]] = [
            len(held) for _ in game.rounds(small_corpus.stream(6))
        ]
    assert list(sizes) == ["fifo", "reservoir", "stratified"]
    assert all(each == [3] * 9 for each in sizes.values())


PARTS = """
from firehose.methods.buffers.fifo import FIFO
from firehose.methods.optimizers.online_gd import OnlineGD
from firehose.optim.sgd import SGD

class Mine(FIFO):
    pass

class Once(OnlineGD):
    pass

class Slow(SGD):
    pass
"""


@pytest.mark.parametrize(
    "setting",
    [
        '"play.memory" = "parts.py:Mine"',
        '"play.optimizer" = "parts.py:Once"',
        '"play.rule" = "parts.py:Slow"',
        '"play.optimizer.validation.kind" = "parts.py:Mine"',
    ],
)
def test_a_changed_file_of_any_part_is_another_job(
    tmp_path: Path, small_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = []
    for text in (PARTS, PARTS, f"{PARTS}    # better\n"):
        (tmp_path / "parts.py").write_text(text)
        (job,) = jobs_of(f'title = "x"\n[[runs]]\nset = {{ {setting} }}', small_corpus, tmp_path)
        keys.append(job.key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("combination", "refused"),
    [
        ({"play.optimizer": "online-gd", "play.optimizer.validation_batch": 8}, True),
        ({"play.optimizer.validation_batch": 8, "play.optimizer": "online-gd"}, True),
        ({"play.optimizer.validation_batch": 8, "play.optimizer": "congrad"}, False),
        ({"play.optimizer": "online-gd"}, False),  # the scale's are set aside
    ],
)
def test_what_an_experiment_sets_is_known_to_the_kinds_it_varies(
    small_corpus: Corpus, tmp_path: Path, combination: dict[str, object], refused: bool
) -> None:
    experiment = Experiment.of({"title": "x", "runs": [{"set": combination}]})
    if refused:
        with pytest.raises(FirehoseError, match="Unknown key 'validation_batch'"):
            make_jobs(experiment, small_corpus, "laptop", 1, tmp_path)
    else:
        (job,) = make_jobs(experiment, small_corpus, "laptop", 1, tmp_path)
        assert job.settings.play.optimizer.kind == combination["play.optimizer"]
