"""What fewer bits, a longer context, a smaller KV cache and drafts bring or cost, by source.

Ratios are taken as `verdicts` takes them: inside a source, all else equal as far as it says."""

import pandas as pd

from llm_measured.published import build, comparable, lookup, verdicts

SIXTEEN, SHORT = "16 bits", "up to 1k"
BACKENDS = ("ROCm", "Vulkan")
KINDS = (("context", "depth", SHORT), ("KV format", "cache", SIXTEEN), ("drafts", "drafts", ""))
HOST = "context, experts in host memory"
BITS_COLUMNS = [
    *("what", "model", "format", "bits", "source", "engine", "value", "value_in_16_bits", "ratio", "least"),
    *("most", "by_bytes", "settings", "devices"),
]
COSTS_COLUMNS = [
    *("what", "level", "source", "device", "model", "bits", "engine", "kept", "least", "most", "settings"),
]


def bits(rows: pd.DataFrame | None = None, scored: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return speed, joules and scores by number format against 16 bits, a row per source, model, engine and
    format; of `rows` (as `comparable.one_user`) and of `scored` (as `comparable.measured`)."""
    rows = _without_other_memory() if rows is None else rows
    scored = _scored() if scored is None else scored
    steps = rows.assign(step=rows["format"].mask(rows["bits"] == 16, SIXTEEN))
    formats = sorted(set(steps["step"]) - {SIXTEEN, ""})
    bits_in = rows.groupby("format")["bits"].median()
    found = []
    for what, part in (("tokens/s", steps), ("J/token", steps.assign(rate=steps["joules"]))):
        table = verdicts.pairs(part[part["rate"] > 0], verdicts.Comparison("step", (SIXTEEN, *formats)))
        table = table.assign(bits=table["against"].map(bits_in))
        for key, part in table.groupby(["model", "against", "bits", "source", "engine"]):
            line = dict(zip(("model", "format", "bits", "source", "engine"), key))
            line |= {"what": what, "value": part["rate_other"].median()}
            line |= {"value_in_16_bits": part["rate_first"].median()}
            if what == "tokens/s":
                line["by_bytes"] = part["by_bytes"].median()
            line["devices"] = ", ".join(sorted(set(part["device"])))
            found.append(line | _spread(part["ratio"]))
    for (source, model, metric), part in scored.groupby(["source", "model", "quality_metric"]):
        wide = part.loc[part["bits"] == 16, "quality"].median()
        if not wide > 0 and part["format"].nunique() < 2:  # nothing to hold it against
            continue
        for (form, narrow), own in part[part["bits"] < 16].groupby(["format", "bits"]):
            line = {"what": metric, "model": model, "format": form, "bits": narrow, "source": source}
            line |= {"value": own["quality"].median(), "value_in_16_bits": wide}
            found.append(line | _spread(own["quality"] / wide))
    return pd.DataFrame(found, columns=BITS_COLUMNS).sort_values(BITS_COLUMNS[:6], ignore_index=True)


def _spread(ratios: pd.Series, name: str = "ratio") -> dict[str, float]:
    ends = {"least": ratios.min(), "most": ratios.max(), "settings": len(ratios)}
    return {name: ratios.median()} | ends


def _without_other_memory() -> pd.DataFrame:
    rows = comparable.one_user()
    return rows[~rows["outside"] & rows["model"].ne("")]


def _scored() -> pd.DataFrame:
    rows = build.table()
    made = comparable.measured(rows[rows["quality"].notna() & (rows["audit"] != "excluded")])
    return made[(made["model"] != "") & made["kv"].isin(lookup.KV)]


def costs(rows: pd.DataFrame | None = None, offloaded: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the share of the speed that is kept at a greater depth (against SHORT), with another KV format
    (against one in 16 bits), with drafts (against none) and with the second of BACKENDS (against the first,
    at each depth), a row per source, device, model, bits and engine; of `rows` as
    `comparable.alone_at_any_depth`, and the first of `offloaded` too."""
    rows = comparable.alone_at_any_depth() if rows is None else rows
    offloaded = comparable.in_host_memory_as_stated() if offloaded is None else offloaded
    found = []
    for what, by, base, levelled in [
        *((what, by, base, _levels(rows)) for what, by, base in KINDS),
        (HOST, "depth", SHORT, _levels(offloaded)),
    ]:
        plain = levelled if by == "drafts" else levelled[levelled["drafts"] == ""]
        levels = sorted(set(plain[by]) - {base, ""})
        table = verdicts.pairs(plain, verdicts.Comparison(by, (base, *levels)))
        for key, part in table.groupby(["against", "source", "device", "model", "bits", "engine"]):
            line = {"what": what} | dict(zip(COSTS_COLUMNS[1:7], key))
            found.append(line | _spread(part["ratio"], "kept"))
    # What the other of two backends of one card leaves, by the depth at which both were measured.
    plain = _levels(rows)
    plain = plain[plain["drafts"] == ""]
    table = verdicts.pairs(plain, verdicts.Comparison("backend", BACKENDS))
    for key, part in table.groupby(["context", "source", "device", "model", "bits", "engine"]):
        line = {"what": " against ".join(reversed(BACKENDS))} | dict(zip(COSTS_COLUMNS[1:7], key))
        found.append(line | _spread(part["ratio"], "kept"))
    return pd.DataFrame(found, columns=COSTS_COLUMNS).sort_values(COSTS_COLUMNS[:7], ignore_index=True)


def _levels(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the `rows` of known models with depth, cache and drafts as they are compared."""
    rows = rows[rows["model"] != ""]
    drafts = rows["speculative"].mask(rows["speculative"] == "none", "")
    wide = rows["kv"].isin(["F16", "BF16"])
    return rows.assign(
        depth=rows["context"].mask(rows["context"].isin(["0k", "1k"]), SHORT),
        cache=rows["kv"].mask(wide, SIXTEEN),
        drafts=drafts.mask(drafts.ne(""), "drafts"),
    )
