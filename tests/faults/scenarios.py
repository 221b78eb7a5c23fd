"""Commands that are interrupted by a crash, and what a user does afterwards."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aftermath import killed
from conftest import INLINE, simple_posts, write_posts
from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.prepare import prepare
from firehose.game.forget import forget
from firehose.game.outcome import TrainingOutcome, read_outcome
from firehose.game.run import play, pretrain, resume
from firehose.game.settings import make_settings
from firehose.models.store import load, save
from firehose.serving.snapshots import Snapshots
from firehose.serving.state import begin, restore
from judging import Meaning, Wrong, leftovers, meaning, refuse_other, told
from recorder import Recorder
from small_models import TINY_GAME, trained_on

RESUMED, REFUSED, AGAIN = "resumed", "refused", "from the start"
TRAINING = ("pretrain.epochs=2", "pretrain.posts=16", "pretrain.rate=0.01", "pretrain.warmup=2")
USER = "user2"


class World(NamedTuple):
    """Folders that a scenario plays in."""

    posts: Path
    corpus: Path
    live: Path  # where files are lost

    @classmethod
    def make(cls, folder: Path) -> "World":
        """Prepare the corpus that runs are begun on."""
        posts = write_posts(folder / "posts.jsonl", simple_posts())
        prepare(make_plan([posts]), folder / "corpus", INLINE)
        return cls(posts, folder / "corpus", folder / "live")


class Truth(NamedTuple):
    """What the files mean where nothing interrupts."""

    before: Meaning
    after: Meaning

    def of(self, folder: str) -> list[Meaning]:
        """What one folder means, before and after."""
        start = f"{folder}/"
        return [
            {name[len(start) :]: each[name] for name in each if name.startswith(start)}
            for each in self
        ]


class Scenario(NamedTuple):
    """A command, and what to do after a crash in the middle of it."""

    before: Callable[[World], object]  # what is there when it begins
    act: Callable[[World], object]  # what is recorded
    recover: Callable[[World, Truth], str]  # what the user does; returns how it came out
    finish: Callable[[World], object] = lambda _: None  # what is done to see what it came to


def _nothing(world: World) -> None:
    world.live.mkdir()


# Games and trainings


def _play(world: World, replace: bool = False, seed: int = 0) -> None:
    settings = make_settings(assignments=[*TINY_GAME, f"play.seed={seed}"])
    play(world.corpus, world.live / "run", settings, replace=replace, checkpoint_every=0)


def _pretrain(world: World, replace: bool = False) -> None:
    settings = make_settings(assignments=[*TINY_GAME, *TRAINING])
    out = world.live / "run"
    pretrain(world.corpus, out, settings, "train", replace=replace, checkpoint_every=0)


def _stopped(world: World) -> None:
    """A game that was killed in its middle, with a log that is ahead of its checkpoint."""
    _nothing(world)
    with Recorder(world.live) as recorder:
        _play(world)
    saving = [
        number
        for number, moment in enumerate(recorder.moments)
        if "run/checkpoints/partial" in moment.names
    ]
    killed(recorder.moments, saving[len(saving) // 2]).place(world.live)


def _resume(world: World) -> None:
    resume(world.live / "run")


def _look_at_run(world: World, truth: Truth) -> None:
    """Read what a run shows to others: it must be right, or refused."""
    run = world.live / "run"
    is_game = any(name.endswith("paid.f32") for name in truth.after)
    if not told(partial(read_outcome if is_game else TrainingOutcome.read, run)):
        shown = meaning(run)["result.json"]
        if shown not in [each["result.json"] for each in truth.of("run") if "result.json" in each]:
            raise Wrong("a wrong number in result.json")
    if not told(partial(load, run)):
        refuse_other(run / "model", *truth.of("run/model"))


def _recover_run(begin: Callable[[World, bool], object], world: World, truth: Truth) -> str:
    """Go on; where that is refused, do what the sentence says."""
    _look_at_run(world, truth)
    run = world.live / "run"
    old, new = truth.of("run")
    why = told(partial(resume, run))
    if "--previous" in why:
        why = told(partial(resume, run, previous=True))
    if (not why or "is over" in why) and refuse_other(run, old, new) == new:
        return RESUMED
    again = told(partial(begin, world, False))
    if not again:
        return AGAIN
    if "--replace" not in again and "--replace" not in why:
        raise Wrong(f"no way on: {why} And then: {again}")
    if last := told(partial(begin, world, True)):
        raise Wrong(f"no way on: {why} And then: {last}")
    return REFUSED


# Forgetting


def _forget_in(what: str, world: World) -> None:
    forget(world.live / what, USER)


def _recover_forget(what: str, world: World, truth: Truth) -> str:
    """Forget once more; refused means that it was done, to the end."""
    if what == "run":
        _look_at_run(world, truth)
    elif not told(partial(load if what == "model" else Corpus, world.live / what)):
        refuse_other(world.live / what, *truth.of(what))
    why = told(partial(_forget_in, what, world))
    if left := leftovers(world.live):
        raise Wrong(f"what is forgotten may be left in {left[0]}; it said: {why or 'nothing'}")
    if not why:
        return AGAIN
    try:
        refuse_other(world.live, truth.after)
    except Wrong as error:
        raise Wrong(f"no way on: {why} It is {error}") from None
    return RESUMED


# Corpora and models


def _prepare(world: World, replace: bool = False, seed: int = 0) -> None:
    plan = make_plan([world.posts], split={"seed": seed})
    prepare(plan, world.live / "corpus", INLINE, replace=replace)


def _save(world: World, replace: bool = False, number: int = 1) -> None:
    trained = trained_on(Corpus(world.corpus))
    trained.origin["number"] = number
    trained.model.shared.output_bias.data.fill_(number)
    save(trained, world.live / "model", replace=replace)


def _recover_made(
    what: str, begin: Callable[[World, bool], object], world: World, truth: Truth
) -> str:
    """Open what was made; where it is not whole, make it again."""
    place = world.live / what
    if not told(partial(load if what == "model" else Corpus, place)):
        if refuse_other(place, *truth.of(what)) == truth.of(what)[1]:
            return RESUMED
        if again := told(partial(begin, world, True)):
            raise Wrong(f"no way on: {again}")
        return AGAIN
    why = told(partial(begin, world, False))
    if why and "--replace" not in why:
        raise Wrong(f"no way on: {why}")
    if why and (last := told(partial(begin, world, True))):
        raise Wrong(f"no way on: {why} And then: {last}")
    return REFUSED if why else AGAIN


# The service: what it begins with, and what it publishes. SQLite, which orders its files itself, in
# another language than ours, is not recorded: benchmarks/service_kills.py is about that.


def _serve(world: World) -> None:
    model, state = world.corpus.with_name("model"), world.live / "state"
    if not model.exists():
        save(trained_on(Corpus(world.corpus)), model)
    state.mkdir(exist_ok=True)
    begin(state, model, make_settings(assignments=TINY_GAME).play)


def _recover_service(world: World, truth: Truth) -> str:
    """Begin again, with the same command; what is there already must be whole."""
    state = world.live / "state"
    is_begun = (state / "serve.json").exists()
    if is_begun and refuse_other(state, *truth.of("state")) != truth.of("state")[1]:
        raise Wrong("a service that is begun, but not all of it is there")
    if why := told(partial(_serve, world)) or told(partial(restore, state)):
        raise Wrong(f"no way on: {why}")
    return RESUMED if is_begun else AGAIN


def _publish(world: World, count: int = 1) -> None:
    trained, snapshots = trained_on(Corpus(world.corpus)), Snapshots(world.live / "snapshots")
    for _ in range(count):
        number = (snapshots.newest() or 0) + 1
        trained.origin["number"] = number
        trained.model.shared.output_bias.data.fill_(number)
        snapshots.publish(trained)


def _recover_published(world: World, truth: Truth) -> str:
    """Serve the newest, which must be whole; where it is not the last, it is published again."""
    snapshots = Snapshots(world.live / "snapshots")
    newest = snapshots.newest() or 0
    if why := told(partial(load, snapshots.place(newest))):
        raise Wrong(f"the newest snapshot cannot be served: {why}")
    name = f"snapshots/{snapshots.place(newest).name}"
    refuse_other(world.live / name, *filter(None, truth.of(name)))
    if newest == 3:
        return RESUMED
    _publish(world)
    return AGAIN


def _after(*steps: Callable[[World], object]) -> Callable[[World], None]:
    def both(world: World) -> None:
        for step in steps:
            step(world)

    return both


SCENARIOS = {
    "play": Scenario(_nothing, _play, partial(_recover_run, _play)),
    "resume": Scenario(_stopped, _resume, partial(_recover_run, _play)),
    "play --replace": Scenario(
        _after(_nothing, partial(_play, seed=1)),
        partial(_play, replace=True),
        partial(_recover_run, _play),
    ),
    "pretrain": Scenario(_nothing, _pretrain, partial(_recover_run, _pretrain)),
    "prepare": Scenario(_nothing, _prepare, partial(_recover_made, "corpus", _prepare)),
    "prepare --replace": Scenario(
        _after(_nothing, partial(_prepare, seed=1)),
        partial(_prepare, replace=True),
        partial(_recover_made, "corpus", _prepare),
    ),
    "save": Scenario(_nothing, _save, partial(_recover_made, "model", _save)),
    "save, replacing": Scenario(
        _after(_nothing, partial(_save, number=2)),
        partial(_save, replace=True),
        partial(_recover_made, "model", _save),
    ),
    "serve": Scenario(_nothing, _serve, _recover_service),
    "publish": Scenario(
        _after(_nothing, partial(_publish, count=2)), _publish, _recover_published, _publish
    ),
    "forget in a corpus": Scenario(
        _after(_nothing, _prepare),
        partial(_forget_in, "corpus"),
        partial(_recover_forget, "corpus"),
    ),
    "forget in a model": Scenario(
        _after(_nothing, _save), partial(_forget_in, "model"), partial(_recover_forget, "model")
    ),
    "forget in a run": Scenario(
        _after(_nothing, _play), partial(_forget_in, "run"), partial(_recover_forget, "run")
    ),
    "forget in a stopped run": Scenario(
        _stopped, partial(_forget_in, "run"), partial(_recover_forget, "run"), _resume
    ),
}
