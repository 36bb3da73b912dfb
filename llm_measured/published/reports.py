"""What the build found, as text and frames: one source, all sources, pitfalls, random samples of findings."""

from pathlib import Path

import pandas as pd

from llm_measured.published import build, checks, names, schema, sources


def of_source(source: str, found: build.Imported | None) -> str:
    """Rows, columns that stayed empty, records left out and what the checks say, of one source; `found` is a
    fresh import, None where its raw files are not here."""
    rows = names.looked_up(build.merged(found) if found else build.committed(source))
    notes = [f"note: {note}" for note in found.notes] if found else []
    if found and (lacked := found.lacked):
        notes.append(f"looked for and in no record: {', '.join(name[:40] for name in lacked)}")
    lines = [
        f"{source}: {len(rows):,} rows" + ("" if found else " (as committed; its raw files are not here)")
    ]
    if not len(rows):
        lines += [build.nothing_read(found)] if found else []
        return "\n".join([*lines, *_left(found), *notes]) + "\n"
    judged = checks.judged(rows)
    counts = judged["audit"].value_counts()
    lines.append(", ".join(f"{counts.get(v, 0):,} {v}" for v in ("ok", "flagged", "excluded")))
    days = rows["measured_on"].dropna()
    span = [days.min(), days.max()] if len(days) else []
    lines.append(f"measured {' … '.join(span) or 'on days that the source does not say'}")
    for what, raw, placed in (
        ("accelerators", "accelerator_raw", "accelerator"),
        ("models", "checkpoint_raw", "model"),
    ):
        lost = sorted(rows.loc[rows[placed].isna() & rows[raw].notna(), raw].unique())
        lines.append(f"{rows[placed].nunique()} {what}; not placed: {', '.join(lost) or 'none'}")
    empty = build.columns_of(rows)
    lines.append(f"{len(empty)} columns stayed empty: {', '.join(empty)}")
    lines += _left(found) + notes
    if found is not None:
        lines += [f"cut {count:,}: {what}" for what, count in found.cuts.items()]
        if found.ragged:
            lines.append(
                f"{sum(found.ragged.values()):,} lines with another number of fields than their header"
            )
    table = checks.counted(rows)
    lines += [f"{row.check} ({row.verdict}): {row.rows:,} rows" for row in table.itertuples()] or [
        "no finding"
    ]
    return "\n".join(lines) + "\n"


def _left(found: build.Imported | None) -> list[str]:
    reasons = found.left_out.groupby("reason", sort=False) if found else []
    return [
        f"left out {len(part):,}: {reason} ({part['source_file'].iloc[0]} {part['source_row'].iloc[0]}"
        f"{', …' if len(part) > 1 else ''})"
        for reason, part in reasons
    ]


def by_source(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per source; columns source, records (rows and records left out), rows, ok, flagged, excluded,
    duplicates, left_out, left_out_for (most frequent reasons), accelerators, licence."""
    judged = checks.judged(rows)
    table = []
    for source, part in judged.groupby("source"):
        left = build.left_out(source)
        reasons = left.groupby("reason")["records"].sum().sort_values(ascending=False)
        counts = part["audit"].value_counts()
        table.append(
            {
                "source": source,
                "records": len(part) + int(left["records"].sum()),
                "rows": len(part),
                **{verdict: int(counts.get(verdict, 0)) for verdict in ("ok", "flagged", "excluded")},
                "duplicates": int(part["duplicate_of"].notna().sum()),
                "left_out": int(left["records"].sum()),
                "left_out_for": "; ".join(f"{n} {reason}" for reason, n in reasons.head(3).items()),
                "accelerators": part["accelerator"].replace(schema.UNKNOWN_VARIANT, None).nunique(),
                "licence": ", ".join(sorted(part["licence"].unique())),
            }
        )
    return pd.DataFrame(table)


def _known_pitfalls() -> list[tuple[str, str, str]]:
    """Return (source, what is easily misread, the check that finds it) of pitfalls.csv; what only an importer
    can know names the importer and the column, with a value where no label contradicts it."""
    table = pd.read_csv(Path(__file__).with_name("pitfalls.csv"), dtype=str)
    return list(table.itertuples(index=False, name=None))


def pitfalls(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per known pitfall; columns source, pitfall, check, as_printed (rows that the check finds
    where the file's own labels are believed), as_read (rows that it still finds as the importer reads
    them)."""
    believed = build.as_printed(rows)
    # Which accelerator the labels mean is a check's own question, and needs the row's own name beside theirs.
    printed = names.looked_up(
        believed.assign(**{n: rows[n] for n in ("accelerator", "accelerator_raw", "model")})
    )
    found = {}
    for name, frame in (("as_printed", printed), ("as_read", rows)):
        every = checks.findings(frame)
        every["source"] = every["row"].map(frame["source"])
        every["check"] += every["verdict"].map(lambda v: " (note)" if v == checks.NOTE else "")
        found[name] = every.groupby(["source", "check"])["row"].nunique()
    table = []
    for source, pitfall, check in _known_pitfalls():
        by, _, what = check.partition(": ")
        if by == "importer":
            counts = {"as_printed": _read_otherwise(rows[rows["source"] == source], what), "as_read": 0}
        elif by == "reader":
            folder = build.folder_of(source)
            lines = sum(build.imported(source, folder).ragged.values()) if folder else 0
            counts = {"as_printed": lines, "as_read": 0}
        elif by == "left out":
            left = build.left_out(source)
            counts = {"as_printed": int(left.loc[left["reason"] == what, "records"].sum()), "as_read": 0}
        else:
            counts = {name: int(series.get((source, check), 0)) for name, series in found.items()}
        table.append({"source": source, "pitfall": pitfall, "check": check} | counts)
    return pd.DataFrame(table)


def _read_otherwise(rows: pd.DataFrame, what: str) -> int:
    """Rows that an importer reads otherwise than their labels: `column`, as `as_printed` keeps the label's
    value, or `column = value` (`any`: every value) of a column for which a file has no label."""
    column, _, value = what.partition(" = ")
    if not value:
        return int(rows["as_printed"].fillna("").str.contains(f'"{column}"').sum())
    if value == "any":
        return int(rows[column].notna().sum())
    return int((rows[column] == (float(value) if column in schema.NUMBERS else value)).sum())


def sample(rows: pd.DataFrame, check: str, count: int) -> str:
    """`count` findings of one check, drawn with a fixed seed: the row, its place and the note."""
    found = checks.findings(rows)
    part = found[(found["check"] == check) & (found["verdict"] != checks.NOTE)]
    part = part if len(part) else found[found["check"] == check]
    drawn = part.sample(min(count, len(part)), random_state=29)
    shown = rows.loc[drawn["row"], ["row_id", "source_file", "source_row"]].reset_index(drop=True)
    shown["note"] = drawn["note"].to_list()
    return f"{len(part)} findings, {len(drawn)} drawn\n{shown.to_string(index=False)}"


def citations() -> str:
    """Every source with what it asks to be cited by, its repository, commit and licence, as Markdown."""
    lines = ["# Sources of the observatory, and how each is cited", ""]
    for name, about in sources.listed().items():
        lines.append(
            f"- **{name}**: {about.citation}. {about.repository} at {about.commit[:12]}, "
            f"licence {about.licence}."
        )
    return "\n".join(lines) + "\n"
