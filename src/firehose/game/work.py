"""The work that is done in the folder of a run, unit by unit."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from firehose.data.corpus import Corpus
from firehose.game.folder import Run
from firehose.game.outcome import Result
from firehose.game.scoring import score_held_out
from firehose.models.model import Model
from firehose.models.personal import Personal
from firehose.models.store import Trained, save


class Work(ABC):
    """The rounds of a game, or the steps of a training, in the folder of their run."""

    unit: ClassVar[str]  # "round" or "step"
    doing: ClassVar[str]  # "playing" or "training"
    total: int  # units in all

    def __init__(self, run: Run, model: Model) -> None:
        if isinstance(model, Personal):
            # From here on the sizes are the model's: what it began with is not needed again.
            tables = run.card.settings | {"model": model.plan.public()}
            run = run._replace(
                card=run.card.model_copy(update={"settings": tables}),
                settings=run.settings.model_copy(update={"model": model.plan}),
            )
        self.run = run
        self.folder = run.folder

    @property
    @abstractmethod
    def done(self) -> int:
        """Units that are done."""

    @abstractmethod
    def units(self) -> Iterator[None]:
        """Do the units that are left; yields after each."""

    @abstractmethod
    def note(self) -> str:
        """How things stand, in a few words."""

    @abstractmethod
    def flush(self) -> None:
        """Bring the logs to where the next checkpoint counts on them."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The state between two units."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""

    @abstractmethod
    def forget(self, user: int) -> dict[str, int]:
        """Erase all that is kept of a user; returns how much of what there was."""

    @abstractmethod
    def finish(self) -> Result:
        """Save and score the final model; returns what came of the run."""

    def save_model(self, model: Personal, corpus: Corpus) -> None:
        """Save the final model, and write what held-out posts cost it."""
        trained = Trained.of_corpus(model.eval(), corpus, self.run.card.origin())
        save(trained, self.folder / "model", replace=True)
        score_held_out(self.folder, corpus, model)
