"""What the build found, as text and frames: one source, all sources, pitfalls, random samples of findings."""

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


# What is known of the sources' files (each found once by hand), and the check that finds it again; a pitfall
# that only an importer can know names the importer and the column, with a value where no label contradicts
# it.
PITFALLS = [
    ("inferencex", "isl and osl are maxima, answers are shorter", "e2e_against_parts"),
    ("inferencex", "isl and osl are maxima: Little's law with osl", "littles_law"),
    ("inferencex", "num_decode_gpu is tp × ep", "littles_law"),
    ("inferencex", "ITL counts events", "itl_against_tpot"),
    ("inferencex", "four files overlap", "left out: an earlier file has the same row"),
    ("aiconfigurator", "rows equal InferenceX's mean to the digit", "duplicates (note)"),
    ("aiconfigurator", "model_path names V3 or R1 for dsr1", "importer: checkpoint_raw"),
    ("mlperf", "llama2-70b-99 and -99.9 are often one run", "duplicates (note)"),
    ("mlperf", "weight_data_types of v4.1 is not the run's", "importer: weights_format"),
    ("mlperf", "lists of accelerators have no count", "stated_by_importer"),
    ("argonne-llm-inference-bench", "the rate is computed from the latency", "latency_against_rate (note)"),
    ("argonne-llm-inference-bench", "llama.cpp's batch is a chunk of one prompt", "latency_against_rate"),
    ("argonne-llm-inference-bench", "avg_power in milliwatts", "power_above_tdp"),
    ("argonne-llm-inference-bench", "57 settings twice", "repeated_setting (note)"),
    ("argonne-llm-inference-bench", "20 lines with a comma too many", "reader: fields against header"),
    ("dgx-spark-djangodevreng", "slower alone than among five", "slower_alone (note)"),
    ("dgx-spark-djangodevreng", "totals with deviations as large as the mean", "spread_as_large"),
    ("localscore", "spread of 1.35 to 17.8 in one group", "far_from_group"),
    ("willitrun", "chips mapped to others", "two_names (note)"),
    (
        "pocketpal",
        "the effective backend is not the requested one (gpu is OpenCL in all 154)",
        "importer: backend",
    ),
    ("apple-john-rocky", "mean of a throttling curve", "stated_by_importer"),
    ("mlenergy-v3", "energy is power ÷ throughput", "energy_against_power (note)"),
    ("mlenergy-v3", "ITL is a median, and of chunks", "gap_against_rate (note)"),
    ("mlenergy-v2", "TPOT × throughput is not the batch", "gap_against_rate (note)"),
    ("tensorrt-llm", "per GPU or of all GPUs, by edition", "importer: throughput_scope"),
    ("anyscale-ray-serve", "all-parts keeps the concurrency of one client", "littles_law"),
    ("anyscale-ray-serve", "median ITL of 0.004 ms", "itl_against_tpot"),
    ("4x3090", "conditions inferred", "stated_by_importer"),
    ("tech-grandpa", '"(P)" is one client that asks several machines at once', "stated_by_importer"),
    ("tech-grandpa", "64 requests are sent over a minute: fewer are in flight", "littles_law"),
    ("infpop", "prefill dominates", "stated_by_importer"),
    ("premai", "faster than its weights can be read", "bandwidth_beyond_device"),
    ("strix-halo-lhl", "power is a mean with the loading in it", "power_of_another_window"),
    ("mac-llm-bench", "GB of a file are GiB", "importer: weights_bytes"),
    ("apple-alexhiesch", "a drafting model stands in the test's name", "importer: speculative = any"),
    ("dgx-spark-djangodevreng", 'weights "in bf16" have fewer bits', "bandwidth_beyond_device"),
    # Cards, boards and laptops that people own.
    ("arc-b70-pmzfx", "the size is of one part of a split file", "file_smaller_than_format"),
    ("club-3090", "MTP and DFlash in most rows, told in a card's name", "importer: speculative = any"),
    ("club-3090", "several pairs of rates in one cell of prose", "left out: not one plain pair of rates"),
    ("dgx-spark-jvr0x", "runs that failed print a rate of 0", "impossible_time"),
    (
        "epyc9655-pestopoppa",
        "an answer of a few tokens may be an echo of the prompt",
        "left out: an answer of less than 64 tokens, which may be an echo",
    ),
    (
        "epyc9655-pestopoppa",
        "a later file repeats answers",
        "left out: an earlier file has the same answer",
    ),
    ("geerlingguy", "two pages have the same rows", "left out: the newer page has the same row"),
    ("gpustack", "the printed rate is not tokens over seconds", "plain_sums"),
    ("gpustack", "gaps of 0 ms, or of several tokens", "importer: itl_p50_ms"),
    (
        "gpustack",
        "a page's command serves another model",
        "left out: its command serves another model than its page is of",
    ),
    ("guruswami", "1,000.0 tokens/s is the limit of a clock", "rate_at_clock_limit"),
    ("guruswami", "Phi-3-medium (9) and 3 capped rates outrun the memory", "bandwidth_beyond_device"),
    ("guruswami", "a long prompt's first token takes one step: cached", "importer: prefix_cached = yes"),
    (
        "guruswami",
        "test-model and demo-model among the rows",
        "left out: no measurement (test-model, demo-model)",
    ),
    ("iog-vllm", "at a low request rate the number is the load", "importer: workload = open_loop"),
    ("jetson-orin-jbecirovski", "a llama 8B of no version", "importer: checkpoint_raw"),
    ("jetson-orin-jbecirovski", "the power mode stands in a folder's name", "importer: power_limit_w = any"),
    ("llmfit-community", "weights partly in the processor's memory", "weights_beyond_memory"),
    ("localmaxxing", "weights partly in other memory, or on two cards", "weights_beyond_memory"),
    ("localmaxxing", "a 27B at 99 to 522 tokens/s on one RTX 3090", "bandwidth_beyond_device"),
    ("localmaxxing", "prompts found in a cache, and the same 27B", "compute_beyond_device"),
    ("localmaxxing", "images as prompts, placeholders of 1", "prompt_slower_than_answer"),
    ("localmaxxing", "rates of whole requests; notes of two cards", "stated_by_importer"),
    ("localmaxxing", "batchSize is llama.cpp's -b", "importer: prefill_chunk = any"),
    ("localmaxxing", "llama-bench's -d is a context depth", "importer: context_depth = any"),
    ("localmaxxing", "drafting is told in a name, a note or a command", "importer: speculative = any"),
    (
        "localmaxxing",
        "the same measurement was sent again",
        "left out: the same measurement was sent before",
    ),
    ("mi50-fank", "cards, power and number format stand in no file", "stated_by_importer"),
    ("mi50-fank", "drafting stands in a file's name", "importer: speculative = any"),
    ("mi50-kyuz0", "tokens_per_second counts the prompt", "importer: throughput_counts = input+output"),
    ("openvino-core-ultra", "one setting has several numbers", "stated_by_importer"),
    ("r9700-kyuz0", "runs that failed among the rows", "left out: the run failed (runtime)"),
    ("r9700-kyuz0", "two cards by the log file's name alone", "importer: accelerators = 2"),
    ("rtx4070tis-ryanilano", "runs that failed among the rows", "left out: the run failed (FAIL)"),
    ("rtx6kpro", "MTP on and off by the file's name", "importer: speculative = MTP"),
    ("rx7900xtx-1337hero", "a llama 7B of no version", "importer: checkpoint_raw"),
    ("vllm-cards-kyuz0", "tokens_per_second counts the prompt", "importer: throughput_counts = input+output"),
    ("vllm-mlx", "tables without a machine", "left out: no table of single requests with its machine"),
]


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
    for source, pitfall, check in PITFALLS:
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


def licences() -> pd.DataFrame:
    """Every source: source, licence (SPDX, or `facts`), commit, repository, measured_by, citation."""
    fields = "licence commit repository measured_by citation".split()
    found = [
        {"source": name} | {f: getattr(module.ABOUT, f) for f in fields} for name, module in sources.modules()
    ]
    return pd.DataFrame(found)


def citations() -> str:
    """Every source with what it asks to be cited by, its repository, commit and licence, as Markdown."""
    lines = ["# Sources of the observatory, and how each is cited", ""]
    for name, module in sources.modules():
        about = module.ABOUT
        lines.append(
            f"- **{name}**: {about.citation}. {about.repository} at {about.commit[:12]}, "
            f"licence {about.licence}."
        )
    return "\n".join(lines) + "\n"
