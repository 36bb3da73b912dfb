"""Frames in, frames out: what observations say, without any formatting."""
