"""``python -m firehose``."""

from firehose.cli import main

main()
