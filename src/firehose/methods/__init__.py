"""Learners, optimizers and buffers: one file a method."""
