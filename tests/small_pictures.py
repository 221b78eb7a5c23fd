"""Small benchmarks with pictures."""

from firehose.classic.methods import Protocol
from firehose.classic.tasks import Benchmark

SMALL = Benchmark("Small", "mnist", "disjoint", 5, 40, 0.1)
PERMUTED = SMALL._replace(kind="permuted", tasks=3)
QUICK = Protocol(memory=20, validation=10)
