"""Observations: columns, files, validity checks, and what is computed when they are read."""
