"""Optimizers: one file a method."""
