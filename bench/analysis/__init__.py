"""Analyses: frames in, frames out."""
