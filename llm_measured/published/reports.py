"""What the build found, as text and frames: one source, all sources, random samples of findings."""

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
