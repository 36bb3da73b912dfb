"""Observations: columns, files, gates, and what is computed when they are read."""
