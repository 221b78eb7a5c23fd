"""Runs beside each other: tables, figures, pages."""
