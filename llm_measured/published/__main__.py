"""llm-measured published: builds the table, reports one source, lists what the checks found."""

import argparse
import sys

import pandas as pd

from llm_measured.published import build, checks, propose, reports, sources, tables
from llm_measured.published.reading import SourceError


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 1 where a raw file could not be read (one sentence each on stderr)."""
    parser = argparse.ArgumentParser(prog="llm-measured published", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    built = commands.add_parser("build", help="import what raw files are here, write rows and Parquet")
    built.add_argument("source", nargs="?", help="this source only")
    built.add_argument(
        "--licensed",
        action="store_true",
        help="leave out sources without a licence, or with one that forbids changes",
    )
    report = commands.add_parser(
        "report", help="one source: rows, columns that stayed empty, what checks say"
    )
    report.add_argument("source")
    tables_ = commands.add_parser("tables", help="write the four tables that pages read, or --check them")
    tables_.add_argument("--check", action="store_true", help="1 where they are not what the rows give")
    commands.add_parser("sources", help="rows read, kept, flagged and excluded by source")
    commands.add_parser("checks", help="findings of every check by source")
    commands.add_parser("propose", help="a clean result file as rows to be proposed", add_help=False)
    commands.add_parser("changed", help="sources to which files belong, whose names come on stdin")
    sample = commands.add_parser("sample", help="findings of one check, drawn at random with a fixed seed")
    sample.add_argument("check")
    sample.add_argument("--rows", type=int, default=20)
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["propose"]:
        return propose.main(words[1:])
    given = parser.parse_args(words)
    pd.set_option("display.width", 200, "display.max_rows", None, "display.max_colwidth", 90)
    try:
        return _run(given)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    if given.command == "build":
        every = [*(name for name, _ in sources.modules()), *build.without_importer()]
        return _build([given.source] if given.source else every, given.licensed)
    if given.command == "report":
        folder = build.folder_of(given.source)
        found = build.imported(given.source, folder) if build.importer(given.source) and folder else None
        print(reports.of_source(given.source, found))
        return 0
    if given.command == "tables":
        wrong = tables.differences() if given.check else []
        agreed = ["The four tables are what the committed rows give."]
        print("\n".join((wrong or agreed) if given.check else tables.write()))
        return 1 if wrong else 0
    if given.command == "changed":
        print("\n".join(sources.of_files(sys.stdin.read().split())))
    elif given.command == "sample":
        print(reports.sample(build.rows(), given.check, given.rows))
    else:
        table = {"sources": reports.by_source, "checks": checks.counted}
        print(table[given.command](build.rows()).to_string(index=False))
    return 0


def _build(chosen: list[str], licensed: bool = False) -> int:
    failed = 0
    known = set(sources.listed())
    more = []
    if lies := build.loose():
        print(
            f"{', '.join(lies[:5])} in OBSERVATORY_RAW itself: not read, as each source is a folder in it.",
            file=sys.stderr,
        )
    for source in chosen:
        folder = build.folder_of(source)
        build.importer(source)
        if folder is None:
            continue
        try:
            found = build.refresh(source, folder) if source in known else build.imported(source, folder)
        except SourceError as error:
            print(error, file=sys.stderr)
            failed = 1
            continue
        refused = found.left_out[found.left_out["refused"]]
        for row in refused.head(5).itertuples():
            print(f"{source}: {row.source_file} {row.source_row} left out, {row.reason}.", file=sys.stderr)
        if len(refused) > 5:
            print(f"{source}: {len(refused) - 5} more records left out for their content.", file=sys.stderr)
        for note in found.notes[:5]:
            print(f"{source}: {note}", file=sys.stderr)
        if source not in known:
            more.append(found.rows)
            print(
                f"{source}: {len(found.rows):,} rows as the tools' files state them, not kept here, "
                "as no importer says whose they are and under which licence (CONTRIBUTING).",
                file=sys.stderr,
            )
    build.DATA.mkdir(parents=True, exist_ok=True)
    (build.DATA / "SOURCES.md").write_text(reports.citations(), encoding="utf-8")
    _write_tables(licensed)
    table = checks.judged(build.joined(more)) if more else build.table()
    build.write_parquet(table, build.DATA / "observatory.parquet")
    verdicts = table["audit"].value_counts()
    print(
        f"{len(table):,} rows of {table['source'].nunique()} sources: "
        + ", ".join(f"{verdicts.get(v, 0):,} {v}" for v in ("ok", "flagged", "excluded"))
    )
    return failed


def _write_tables(licensed: bool) -> None:
    """Write the checked table, its findings and what was left out, of all or of the `licensed` sources."""
    whole = build.joined(licensed=licensed)
    empty = pd.DataFrame(columns=["source_file", "reason", "records", "source"])
    kept_out = [build.left_out(source).assign(source=source) for source in sorted(set(whole["source"]))]
    refused = pd.concat([empty, *kept_out], ignore_index=True)
    build.write_table("left_out", refused.astype({"records": int}).fillna({"source_file": ""}))
    # Computed anew: those that are committed are of the checks as they were.
    findings = checks.found(whole)
    build.write_table("table", checks.judged(whole, findings))
    build.write_table("findings", findings)
    checks.committed.cache_clear()


if __name__ == "__main__":
    sys.exit(main())
