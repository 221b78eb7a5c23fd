"""Code that only a file names is not run, unless it is known as the user's, or allowed."""

import json
import pickle
import py_compile
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_run import left_behind, stop_after

from conftest import INLINE, simple_posts, write_posts
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.post import Post
from firehose.data.prepare import prepare
from firehose.errors import FirehoseError, Stopped
from firehose.experiments.compare import compare
from firehose.experiments.jobs import Job
from firehose.experiments.reproduce import make_schedule
from firehose.game.forget import forget
from firehose.game.live import load
from firehose.game.run import play, resume
from firehose.game.settings import Settings, make_settings
from firehose.plugins import USERS, checksum, source_file
from small_experiments import tiny_scale
from small_models import TINY_GAME

REFUSED = r"names .*, and .* would be run as your own code; look at it, and allow it with --trust"
LEARNER = """
from pathlib import Path
from firehose.methods.learners.online_only import OnlineOnly

Path(__file__).with_suffix(".ran").touch()

class Mine(OnlineOnly):
    '''Says that it was run.'''
"""
SOURCE = """
import json
from pathlib import Path
from firehose.data.post import Post
from firehose.data.sources import Source

Path(__file__).with_suffix(".ran").touch()

class Mine(Source):
    def shards(self):
        lines = Path(self.paths[0]).read_text().splitlines()
        return [{"lines": lines[::2]}, {"lines": lines[1::2]}]

    def read(self, shard):
        for line in shard["lines"]:
            yield Post(**json.loads(line))
"""
Another = Callable[[], None]


@pytest.fixture
def another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Another:
    """Become another user, in a process that has run nothing yet."""
    users: list[Path] = []

    def become() -> None:
        users.append(tmp_path / f"user {len(users)}")
        monkeypatch.setenv("XDG_STATE_HOME", str(users[-1]))
        for name in [*sys.modules]:
            if name.startswith((USERS, "others_")):
                monkeypatch.delitem(sys.modules, name)
        for mark in tmp_path.rglob("*.ran"):
            mark.unlink()

    become()
    return become


@pytest.fixture
def learner(tmp_path: Path) -> str:
    (tmp_path / "others.py").write_text(LEARNER)
    return f"{tmp_path}/others.py:Mine"


def tiny(learner: str) -> Settings:
    return make_settings(assignments=[*TINY_GAME, f"play.learner={learner}"])


def has_run(folder: Path) -> bool:
    return bool(list(folder.rglob("*.ran")))


def refuse(call: Callable[[], Any], folder: Path) -> None:
    with pytest.raises(FirehoseError, match=REFUSED):
        call()
    assert not has_run(folder)


def test_a_run_from_somebody_else_runs_no_code_unless_it_is_allowed(
    tmp_path: Path, small_corpus: Corpus, learner: str, another: Another,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = tmp_path / "run"
    play(small_corpus, tmp_path / "whole", tiny(learner))
    with monkeypatch.context() as patch:
        stop_after(patch, 3, sign=signal.SIGTERM)
        with pytest.raises(Stopped):
            play(small_corpus, run, tiny(learner))
    another()
    refuse(lambda: resume(run), tmp_path)
    refuse(lambda: forget(run, "user0"), tmp_path)
    refuse(lambda: forget(tmp_path / "whole", "user0"), tmp_path)
    assert len(compare([tmp_path / "whole"]).runs) == 1  # reads, and runs nothing
    assert not has_run(tmp_path)
    resume(run, trust=True)
    assert has_run(tmp_path)
    assert left_behind(run) == left_behind(tmp_path / "whole")
    forget(run, "user0")  # now it is known


def test_a_run_that_was_begun_here_goes_on_unasked(
    tmp_path: Path, small_corpus: Corpus, learner: str, another: Another
) -> None:
    del another
    play(small_corpus, tmp_path / "run", tiny(learner))
    assert forget(tmp_path / "run", "user0")["vectors"] == 1


def test_a_run_that_does_not_list_its_code_runs_none_either(
    tmp_path: Path, small_corpus: Corpus, learner: str, another: Another
) -> None:
    play(small_corpus, tmp_path / "run", tiny(learner))
    card = json.loads((tmp_path / "run/run.json").read_text())
    assert card["plugins"].pop(learner)
    (tmp_path / "run/run.json").write_text(json.dumps(card))
    another()
    refuse(lambda: forget(tmp_path / "run", "user0"), tmp_path)


@pytest.mark.parametrize(
    "table",
    [
        '[play]\nlearner = "{}"',
        '[play.learner]\nkind = "{}"',
        '[play.optimizer.validation]\nkind = "{}"',
        '[play]\nmemory = "{}"',
    ],
)
def test_a_recipe_from_somebody_else_runs_no_code(
    tmp_path: Path, learner: str, another: Another, table: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(table.format(learner))
    refuse(lambda: make_settings(recipe), tmp_path)
    if "learner" not in table:
        return
    assert make_settings(recipe, trust=True).play.learner.kind == learner
    assert has_run(tmp_path)
    assert make_settings(recipe).play.learner.kind == learner  # from here on it is known
    (tmp_path / "others.py").write_text(f"{LEARNER}# changed")
    another()
    refuse(lambda: make_settings(recipe), tmp_path)
    # Named by the user, too, and so it is the user's.
    assert make_settings(recipe, [f"play.learner={learner}"]).play.learner.kind == learner
    assert has_run(tmp_path)


def test_what_has_changed_since_it_was_allowed_is_asked_for_again(
    tmp_path: Path, learner: str, another: Another
) -> None:
    del another
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[play]\nlearner = "{learner}"')
    make_settings(recipe, trust=True)
    (tmp_path / "others.py").write_text(f"{LEARNER}# changed")
    with pytest.raises(FirehoseError, match=REFUSED):
        make_settings(recipe)


def test_a_module_that_can_be_imported_is_asked_for_with_its_packages(
    tmp_path: Path, another: Another, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "others_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(LEARNER)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[play]\nlearner = "others_package.inner:Mine"')
    assert source_file("others_package.inner:Mine") == package / "inner.py"
    assert checksum("others_package.inner:Mine")
    refuse(lambda: make_settings(recipe), tmp_path)
    make_settings(recipe, trust=True)
    assert has_run(tmp_path)
    (package / "__init__.py").write_text("# of somebody else")
    another()
    make_settings(assignments=[f"play.learner={package}/inner.py:Mine"])
    for mark in tmp_path.rglob("*.ran"):
        mark.unlink()
    refuse(lambda: make_settings(recipe), tmp_path)


def test_parts_that_come_with_firehose_need_no_trust(tmp_path: Path, another: Another) -> None:
    del another
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[play]\nlearner = "firehose.methods.learners.gem:GEM"')
    assert make_settings(recipe).play.learner.kind.endswith("GEM")


def test_what_is_compiled_beside_a_file_is_not_run_in_its_place(
    tmp_path: Path, learner: str, another: Another
) -> None:
    del another
    (tmp_path / "evil.py").write_text(f"{LEARNER}\nraise SystemExit('evil')")
    py_compile.compile(
        str(tmp_path / "evil.py"),
        str(tmp_path / f"__pycache__/others.{sys.implementation.cache_tag}.pyc"),
        str(tmp_path / "others.py"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    assert make_settings(assignments=[f"play.learner={learner}"]).play.learner.kind == learner


def test_a_configuration_from_somebody_else_runs_no_source(
    tmp_path: Path, another: Another
) -> None:
    (tmp_path / "others.py").write_text(SOURCE)
    posts = write_posts(tmp_path / "posts.jsonl", simple_posts())
    kind = f"{tmp_path}/others.py:Mine"
    made = prepare(make_plan([posts], source=kind), tmp_path / "corpus", INLINE).corpora[0]
    another()
    config = made.path / "config.toml"
    refuse(lambda: make_plan(config=config), tmp_path)
    plan = make_plan(config=config, trust=True)
    sent = pickle.dumps(plan.source)  # as it is to the processes that do the work
    another()
    assert dict(pickle.loads(sent)) == dict(plan.source) and has_run(tmp_path)
    assert prepare(plan, tmp_path / "again", INLINE).corpora[0].seal() == made.seal()


def test_the_runs_of_an_experiment_inherit_what_was_decided(
    tmp_path: Path, small_corpus: Corpus, learner: str, another: Another,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    del another
    experiment = tmp_path / "mine.toml"
    experiment.write_text(f'title = "x"\n[[runs]]\nvary = {{ "play.learner" = ["{learner}"] }}')

    def jobs(**trust: bool) -> list[Job]:
        scale = tiny_scale(tmp_path)
        return make_schedule(experiment, small_corpus, tmp_path, scale, 1, **trust).jobs

    refuse(jobs, tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/none")  # where nothing can be remembered
    (job,) = jobs(trust=True)
    job.recipe.parent.mkdir(parents=True)
    job.recipe.write_text(job.settings.to_toml())
    with pytest.raises(FirehoseError, match=REFUSED):
        make_settings(job.recipe)
    command = [sys.executable, "-m", "firehose", *job.left()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert job.is_done and job.left()[-1] == "--trust"


def test_an_expert_that_a_model_names(
    tmp_path: Path, small_corpus: Corpus, another: Another
) -> None:
    """A run and its model name an expert in a list of several; nobody else runs it unasked."""
    file = tmp_path / "mine.py"
    file.write_text(LEARNER.replace("learners.online_only", "experts.memory").replace(
        "OnlineOnly", "Memory"
    ))  # fmt: skip
    mixed = [
        "play.predictor=mixture",
        f'play.predictor.experts=["memory",{{kind="{file}:Mine",per_user=2}}]',
    ]
    run = tmp_path / "run"
    play(small_corpus, run, make_settings(assignments=TINY_GAME + mixed))
    assert list(json.loads((run / "run.json").read_text())["plugins"]) == [f"{file}:Mine"]
    posts = [Post("user0", "the quick brown fox")]
    paid = load(run, min_users=1).pay(posts).nats.tolist()
    another()
    for refused in (lambda: load(run), lambda: forget(run / "model", "user0")):
        with pytest.raises(FirehoseError, match=REFUSED):
            refused()
    assert not file.with_suffix(".ran").exists()
    assert load(run, min_users=1, trust=True).pay(posts).nats.tolist() == paid
