"""Does personalization help on these posts, by how much, and for whom?"""

from pathlib import Path
from typing import Any, NamedTuple

from firehose.data.corpus import Corpus, open_corpus
from firehose.errors import FirehoseError
from firehose.experiments import personalize_page
from firehose.experiments.execute import execute
from firehose.experiments.gains import Method, Pair
from firehose.experiments.jobs import Job
from firehose.experiments.recipe import read_experiments
from firehose.experiments.reproduce import make_schedule
from firehose.game.outcome import Outcome
from firehose.game.results import rows_of
from firehose.game.totals import Measured
from firehose.progress import announce
from firehose.report.results import Row, write_results
from firehose.report.tables import Table
from firehose.report.words import interval, number

EXPERIMENT = "personalize"
METHODS = ("model", "model and memories")  # the best one last
FEWEST_POSTS = 100  # of a stream, for anything to be said about it


class Personalization(NamedTuple):
    """The answer, and where to look at it."""

    page: Path
    sentence: str
    is_pretrained: bool
    methods: list[Method]

    @property
    def gain(self) -> Measured:
        """By what share perplexity falls with the best method, with its interval over users."""
        return self.methods[-1].online.gain()

    def table(self) -> Table:
        """What each method paid for the stream."""
        return personalize_page.overview(self.methods)

    def public(self) -> dict[str, Any]:
        """As plain values."""
        found = {}
        for method in self.methods:
            gain, held_out = method.online.gain(), method.test.gain()
            unknown, known = method.online.perplexities()
            found[method.name] = {
                "users unknown": unknown,
                "users known": known,
                "gain": {"value": gain.value, "low": gain.low, "high": gain.high},
                "test gain": {"value": held_out.value, "low": held_out.low, "high": held_out.high},
            }
        answer = {"answer": self.sentence, "pretrained": self.is_pretrained}
        return answer | {"methods": found, "page": str(self.page)}


def personalize(  # noqa: PLR0913, PLR0917 (an option each)
    corpus: Corpus | str | Path,
    out: str | Path = "personalized",
    scale: str | Path = "laptop",
    seeds: int = 1,
    jobs: int | None = None,
    mask: bool = False,
    reuse_older: bool = False,
    command: str = "firehose.personalize(…)",
) -> Personalization:
    """Play the same stream without and with knowing who writes, and say what that is worth.

    Each is played by a model alone, and by a model beside memories, the best method there is. If
    the corpus has posts from before the stream, a model is pretrained on them first. Runs are kept
    under ``out/runs``: none is done twice, and what was stopped goes on. The page is
    ``out/index.html``; with ``mask`` it shows neither words nor names, so that it can be published.
    """
    opened, folder = open_corpus(corpus), Path(out)
    _refuse_too_little(opened)
    schedule = make_schedule(
        read_experiments(EXPERIMENT), opened, folder, scale, seeds, reuse_older
    )
    if failed := execute(schedule.jobs, jobs or schedule.at_once()):
        names = {job.key: job for job in schedule.jobs}
        key, why = next(iter(failed.items()))
        raise FirehoseError(
            f"{names[key].name} failed: {why.rstrip('.')}; {names[key].log} has more, and the same "
            "command tries again."
        )
    methods = [_read(name, schedule.parts[0].jobs, opened) for name in METHODS]
    is_pretrained = bool(opened.manifest.posts.get("pretrain"))
    sentence = answer(methods[-1].online)
    found = Personalization(folder / "index.html", sentence, is_pretrained, methods)
    write_results(folder, _rows(methods))
    with announce("drawing"):
        personalize_page.write(found.page, opened, sentence, is_pretrained, methods, mask, command)
    return found


def _refuse_too_little(corpus: Corpus) -> None:
    about = corpus.manifest
    if about.users < 2 or about.posts["train"] < FEWEST_POSTS:
        raise FirehoseError(
            f"{corpus.path} has {about.posts['train']:,} posts by {about.users:,} users: too few "
            f"to say anything about people; prepare at least {FEWEST_POSTS} posts by several."
        )


def _read(name: str, jobs: list[Job], corpus: Corpus) -> Method:
    unknown, known = (
        [job for job in jobs if job.called == f"{name}, users {how}"]
        for how in ("unknown", "known")
    )
    online = Pair.read(unknown, known, corpus, "online")
    return Method(name, unknown, known, online, Pair.read(unknown, known, corpus, "test"))


def _rows(methods: list[Method]) -> list[Row]:
    """A row for each number of each run, and for what knowing the users was worth."""
    rows = []
    for method in methods:
        for how, jobs in (("unknown", method.unknown), ("known", method.known)):
            varies = {"method": method.name, "users": how}
            for job in jobs:
                rows += rows_of(Outcome.read(job.folder), job.called, job.seed, varies)
        for measure, pair in (("online", method.online), ("test", method.test)):
            gain = pair.gain()
            ends = (gain.value, gain.low, gain.high)
            rows.append(Row(method.name, f"{measure}, gain", *ends, varies={"method": method.name}))
    return rows


def answer(paid: Pair) -> str:
    """What knowing who writes was worth on a stream, in one sentence with its interval."""
    gain = paid.gain()
    before, after = paid.perplexities()
    places = 0 if max(before, after) >= 100 else 1
    unknown, known = number(before, places), number(after, places)
    value, low, high = interval(*(100 * each for each in (gain.value, gain.low, gain.high)))
    sure = f"95\N{NO-BREAK SPACE}% of samples of users: {low} to {high}\N{NO-BREAK SPACE}%"
    if gain.low > 0:
        return (
            "Knowing who writes lowers the perplexity of the next post by "
            f"{value}\N{NO-BREAK SPACE}% ({sure}), from {unknown} to {known} per word."
        )
    if gain.high < 0:
        value, low, high = interval(*(-100 * each for each in (gain.value, gain.high, gain.low)))
        return (
            f"Knowing who writes does not help here: it raises the perplexity of the next post by "
            f"{value} % (95 % of samples of users: {low} to {high} %), from {unknown} to {known} "
            "per word."
        )
    return (
        f"Whether knowing who writes helps cannot be told from these posts: perplexity per word is "
        f"{unknown} without and {known} with it, {value} % lower ({sure})."
    )
