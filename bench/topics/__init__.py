"""Topics: runs in, frames and one tidy table out (`bench.topics.tables` writes them as CSV)."""
