"""Analysis: frames in, frames out, no formatting."""
