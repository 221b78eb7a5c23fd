"""What a service tells Prometheus: posts, rounds, costs, latencies; of nobody in particular."""

import math
import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from firehose.serving.access import Application, Message, Receive, Send
from firehose.serving.desk import Desk

BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30)  # seconds


class InboxCollector(Collector):
    """Reads the inbox when it is asked, so that the numbers survive a restart."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def collect(self) -> Iterable[Metric]:
        """All numbers as they are now."""
        totals, served = self.desk.book.totals(), self.desk.served
        counters = {
            "posts_accepted": ("Posts that were accepted.", totals.accepted),
            "posts_learned": ("Posts that were learned from.", totals.learned),
            "posts_unreadable": ("Posts without words, or too long.", totals.unreadable),
            "rounds": ("Rounds that were played.", totals.rounds),
            "words": ("Words that were paid for.", totals.words),
            "nats": ("What they cost as their users.", totals.nats),
            "nats_as_nobody": ("What they would have cost as nobody.", totals.nobody),
            "steps_taken": ("Gradient steps.", totals.taken),
            "steps_kept": ("Gradient steps that were kept.", totals.kept),
        }
        for name, (help_text, value) in counters.items():
            yield CounterMetricFamily(f"firehose_{name}", help_text, value)
        for name, nats in (("perplexity", totals.nats), ("perplexity_as_nobody", totals.nobody)):
            whose = "as nobody" if name.endswith("nobody") else "as its user"
            per_word = math.exp(min(nats / totals.words, 700)) if totals.words else math.nan
            help_text = f"Online, per word, {whose}, over all that was learned."
            yield GaugeMetricFamily(f"firehose_{name}", help_text, per_word)
        yield GaugeMetricFamily("firehose_posts_waiting", "Posts that wait.", totals.waiting)
        number = served.number if served else 0
        yield GaugeMetricFamily("firehose_snapshot", "The snapshot that answers.", number)


class Metrics:
    """The numbers of one server."""

    def __init__(self, desk: Desk) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(InboxCollector(desk))
        self.seconds = Histogram(
            "firehose_request_seconds",
            "How long requests take.",
            ("route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    def page(self) -> bytes:
        """All of them, as Prometheus reads it."""
        return generate_latest(self.registry)


class Timed:
    """Measures how long answers take, by route and never by name, until they begin.

    It hands messages on as they are: FastAPI's own kind of middleware starts a task and two queues
    for each request, which takes as long as a small answer.
    """

    def __init__(self, app: Application, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a request be answered, and tell browsers that what users wrote is data."""
        begun = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - begun
                route = getattr(scope.get("route"), "path", "none")
                self.metrics.seconds.labels(route, message["status"]).observe(seconds)
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        await self.app(scope, receive, timed)
