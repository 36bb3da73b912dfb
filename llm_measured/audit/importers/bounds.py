"""How much of a file is kept in memory, whether it is parsed whole or as a stream."""

TEXT_CHARS = 500  # of a text
ITEMS = 50_000  # of an array of objects
NAMES = 10_000  # of an object
VALUES = 4_000_000  # of a large file in all
# Names that no importer reads and whose values would fill the memory.
SKIPPED = set("request_args info pdf percentile_cis mean_ci responses tool_calls raw_response".split())
