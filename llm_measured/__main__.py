"""llm-measured: what cannot be true in a benchmark file, whether B is faster than A, what others published.

llm-measured audit FILE...       what in benchmark files cannot be true, contradicts itself or is missing;
                                 --place: and the expected range, and the published rows that come nearest
llm-measured compare A B         whether B is faster than A: two result files, or folders of repeats
llm-measured published COMMAND   what the field has published, one checked table (sources, checks, ...)
llm-measured expect QUESTION     tokens/s of a model on an accelerator; predict DATA OUT: of each row of a CSV
"""

import importlib
import os
import sys
from collections.abc import Sequence

# Command -> module with a `main` that takes the words after it and returns the exit status.
COMMANDS = {
    "audit": "llm_measured.audit.report",
    "compare": "llm_measured.compare.command",
    "published": "llm_measured.published.__main__",
    "expect": "llm_measured.predict.command",
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that `words`, or the command line, begin with; returns its exit status."""
    command, *rest = list(sys.argv[1:] if words is None else words) or [""]
    if command in ("-h", "--help"):
        print(__doc__)
        return 0
    if command not in COMMANDS:
        print(
            f"Unknown command {command!r}." if command else "Name a command.",
            __doc__,
            sep="\n\n",
            file=sys.stderr,
        )
        return 2
    # The audit lies below the predictions, and may not import them.
    placed = command == "audit" and "--place" in rest
    module = importlib.import_module("llm_measured.predict.place" if placed else COMMANDS[command])
    try:
        return module.main(rest)
    except BrokenPipeError:  # of `| head`, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is written at exit either
        return 0


if __name__ == "__main__":
    sys.exit(main())
