"""Firehose: personalized online language learning.

Every command of the ``firehose`` program is a function here. They are loaded when first used,
so that ``import firehose`` and ``firehose --help`` take no time.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

# How OpenMP's threads wait for each other, read when torch starts. Not for long: on a machine that
# does anything else at the same time, spinning threads make a step several times slower. But for a
# little: going to sleep thousands of times a step costs a tenth of it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

if TYPE_CHECKING:
    from firehose.batch import Batch as Batch
    from firehose.data.corpus import Corpus as Corpus, check as check
    from firehose.data.encoder import Encoder as Encoder
    from firehose.data.pictures.fetch import fetch as fetch
    from firehose.data.plan import Plan as Plan, make_plan as make_plan
    from firehose.data.post import Post as Post
    from firehose.data.prepare import Execution as Execution, prepare as prepare
    from firehose.data.stats import stats as stats
    from firehose.data.vocabulary import Vocabulary as Vocabulary
    from firehose.errors import FirehoseError as FirehoseError
    from firehose.experiments.classic import run_classic as run_classic
    from firehose.experiments.compare import compare as compare, report as report
    from firehose.experiments.demo import demo as demo
    from firehose.experiments.personalize import personalize as personalize
    from firehose.experiments.reproduce import reproduce as reproduce
    from firehose.game.assembly import Game as Game, make_game as make_game
    from firehose.game.baseline import baseline as baseline
    from firehose.game.evaluate import evaluate as evaluate
    from firehose.game.forget import forget as forget
    from firehose.game.live import Trained as Trained, load as load
    from firehose.game.run import (
        offline as offline,
        play as play,
        pretrain as pretrain,
        resume as resume,
    )
    from firehose.game.settings import make_settings as make_settings
    from firehose.generation.generate import generate as generate
    from firehose.generation.sampling import Sampling as Sampling
    from firehose.generation.suggest import suggest as suggest
    from firehose.models.published import convert as convert
    from firehose.models.store import save as save
    from firehose.serving.service import ServiceSettings as ServiceSettings, serve as serve

__version__ = "0.1.0"

_NAMES = {  # of each module
    "batch": "Batch", "errors": "FirehoseError",
    "data.corpus": "Corpus check", "data.encoder": "Encoder", "data.pictures.fetch": "fetch",
    "data.plan": "Plan make_plan", "data.post": "Post", "data.prepare": "Execution prepare",
    "data.stats": "stats", "data.vocabulary": "Vocabulary",
    "experiments.classic": "run_classic", "experiments.compare": "compare report",
    "experiments.demo": "demo", "experiments.personalize": "personalize",
    "experiments.reproduce": "reproduce",
    "game.assembly": "Game make_game", "game.baseline": "baseline", "game.evaluate": "evaluate",
    "game.forget": "forget",
    "game.live": "Trained load", "game.run": "offline play pretrain resume",
    "game.settings": "make_settings",
    "generation.generate": "generate", "generation.sampling": "Sampling",
    "generation.suggest": "suggest", "models.published": "convert", "models.store": "save",
    "serving.service": "ServiceSettings serve",
}  # fmt: skip
_HOMES = {name: f"firehose.{home}" for home, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'firehose' has no attribute {name!r}")
