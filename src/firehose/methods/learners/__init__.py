"""Learners: one file a method."""
