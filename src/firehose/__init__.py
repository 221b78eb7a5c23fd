"""Firehose: personalized online language learning."""

__version__ = "0.1.0"
