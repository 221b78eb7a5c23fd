"""The language models."""
