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
    from firehose.data.corpus import Corpus as Corpus
    from firehose.data.corpus import check as check
    from firehose.data.encoder import Encoder as Encoder
    from firehose.data.plan import Plan as Plan
    from firehose.data.plan import make_plan as make_plan
    from firehose.data.post import Post as Post
    from firehose.data.prepare import Execution as Execution
    from firehose.data.prepare import prepare as prepare
    from firehose.data.stats import stats as stats
    from firehose.data.vocabulary import Vocabulary as Vocabulary
    from firehose.errors import FirehoseError as FirehoseError
    from firehose.experiments.compare import compare as compare
    from firehose.experiments.demo import demo as demo
    from firehose.experiments.reproduce import reproduce as reproduce
    from firehose.game.assembly import make_game as make_game
    from firehose.game.evaluate import evaluate as evaluate
    from firehose.game.run import play as play
    from firehose.game.run import resume as resume
    from firehose.game.settings import make_settings as make_settings
    from firehose.game.training import offline as offline
    from firehose.game.training import pretrain as pretrain
    from firehose.generation.generate import generate as generate
    from firehose.generation.sampling import Sampling as Sampling
    from firehose.generation.suggest import suggest as suggest
    from firehose.models.published import convert as convert
    from firehose.models.store import Trained as Trained
    from firehose.models.store import load as load
    from firehose.models.store import save as save

__version__ = "0.1.0"

_HOMES = {
    "Batch": "firehose.batch",
    "Corpus": "firehose.data.corpus",
    "check": "firehose.data.corpus",
    "Encoder": "firehose.data.encoder",
    "Plan": "firehose.data.plan",
    "make_plan": "firehose.data.plan",
    "Post": "firehose.data.post",
    "Execution": "firehose.data.prepare",
    "prepare": "firehose.data.prepare",
    "stats": "firehose.data.stats",
    "Vocabulary": "firehose.data.vocabulary",
    "demo": "firehose.experiments.demo",
    "FirehoseError": "firehose.errors",
    "compare": "firehose.experiments.compare",
    "reproduce": "firehose.experiments.reproduce",
    "evaluate": "firehose.game.evaluate",
    "make_settings": "firehose.game.settings",
    "offline": "firehose.game.training",
    "pretrain": "firehose.game.training",
    "make_game": "firehose.game.assembly",
    "play": "firehose.game.run",
    "resume": "firehose.game.run",
    "convert": "firehose.models.published",
    "Trained": "firehose.models.store",
    "load": "firehose.models.store",
    "save": "firehose.models.store",
    "Sampling": "firehose.generation.sampling",
    "generate": "firehose.generation.generate",
    "suggest": "firehose.generation.suggest",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'firehose' has no attribute {name!r}")
