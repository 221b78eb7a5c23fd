"""Buffers: one file a method."""
