"""Figures, tables, pages and words for numbers: one look for everything."""
