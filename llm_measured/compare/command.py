"""Is B faster than A? Two result files of any tool, or folders of repeats, and a verdict.

    llm-measured compare A B
    llm-measured compare A1 A2 A3 -- B1 B2 B3 [--fail-if "ttft_p90 > +10%"] [--markdown OUT] [--json OUT]

Exit code 0; 1 when a limit of --fail-if is significantly passed; 2 where the two are not comparable, cannot
be read, or a limit could not be tested. Noise never gives 1.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_measured.audit.report import plain
from llm_measured.compare import limits, render
from llm_measured.compare.report import MARGIN, NOT_COMPARABLE, compare

BETWEEN = "\0"  # stands for the -- between the sides, which argparse would take for its own


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The parsed options, with the paths of both sides as the lists `a` and `b`; a usage error exits with 2.

    `files` still holds all paths, with BETWEEN for the `--`.
    """
    parser = argparse.ArgumentParser(
        prog="llm-measured compare",
        description=__doc__.partition("\n\n    ")[0],
        epilog="Exit code 1 when a limit is significantly passed, 2 where they are not comparable or a limit "
        "could not be tested, else 0.",
    )
    parser.add_argument(
        "files", nargs="*", metavar="A B, or A... -- B...", help="result files, or folders of repeats"
    )
    parser.add_argument(
        "--margin", type=float, default=MARGIN, help="ratios within it are equal (default 0.05)"
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="CONDITION",
        help="compare though it differs: lengths, model, ...",
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="LIMIT",
        help='exit code 1 when passed: "ttft_p90 > +10%%"',
    )
    for name in ("markdown", "json"):
        parser.add_argument(
            f"--{name}", metavar="OUT", help=f"write the report as {name}, too; - prints it instead"
        )
    options = parser.parse_intermixed_args([BETWEEN if word == "--" else word for word in words])
    if options.files.count(BETWEEN) > 1:
        parser.error("more than one --: put it once, between the files of A and those of B")
    if BETWEEN in options.files:
        split = options.files.index(BETWEEN)
        options.a, options.b = options.files[:split], options.files[split + 1 :]
    else:
        options.a, options.b = options.files[:1], options.files[1:]
        if len(options.files) != 2:
            parser.error("name two files or folders, or put -- between the files of A and those of B")
    if not options.a or not options.b:
        parser.error("one side has no file")
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Compare what the command line names; returns the exit code."""
    options = arguments(list(sys.argv[1:] if words is None else words))
    try:
        stated = [limits.parse(text) for text in options.fail_if]
        report = compare(options.a, options.b, options.margin, options.allow, stated)
    except BrokenPipeError:
        raise
    except (ValueError, OSError) as error:
        print(plain(error), file=sys.stderr)
        return 2
    forms = {"markdown": render.markdown, "json": render.as_json}
    asked = {name: getattr(options, name) for name in forms if getattr(options, name)}
    for name, out in asked.items():
        if out != "-":
            Path(out).write_text(forms[name](report), encoding="utf-8")
    printed = [forms[name] for name, out in asked.items() if out == "-"] or [render.text]
    print(printed[0](report), end="")
    if report["verdict"] == NOT_COMPARABLE:
        return 2
    if any(limit["passed"] for limit in report["limits"]):
        return 1
    return 2 if any(limit["ratio"] is None for limit in report["limits"]) else 0


if __name__ == "__main__":
    sys.exit(main())
