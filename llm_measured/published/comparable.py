"""Published rows side by side: what each ran, in one spelling, and how fast.

Nothing is estimated here and nothing pooled. Whether two rows are like, and of what a number is made, say
`verdicts` and `lookup`."""

import functools
import re

import numpy as np
import pandas as pd

from llm_measured.core import hardware
from llm_measured.core import names as core_names
from llm_measured.published import build, derived, names, schema

LONGEST_CONTEXT = 4096  # tokens: up to here, reading the KV cache is small beside the weights
# Tokens in the cache and of the prompt: between two of these counts as one context.
CONTEXTS = [-1, 256, 1024, 6000, 12000, 24000, 48000, 96000, 192000, np.inf]
CONTEXT_NAMES = ["0k", "1k", "4k", "8k", "16k", "32k", "64k", "128k", "256k"]
# Bits per weight, with scales: the formats of one bucket are chosen between as if they were one.
BITS = {
    2: (1.5, 2.95),
    3: (2.95, 3.85),
    4: (3.85, 5.15),
    5: (5.15, 6.0),
    6: (6.0, 7.0),
    8: (7.0, 9.1),
    16: (15, 17),
}
LEAST_BOUND = 0.002  # s
EMBEDDING = 4e9  # bytes of weights in the host's memory, up to which they may be those of the tokens alone
GPU_BACKENDS = {"CUDA", "ROCm", "Vulkan", "Metal", "SYCL", "OpenCL", "GPU"}
# What each vendor's own cards run on: equal where cards of two vendors are compared.
OWN_BACKEND = {"NVIDIA": "CUDA", "AMD": "ROCm", "Apple": "Metal", "Intel": "SYCL"}

NO_VARIANT = ("", schema.UNKNOWN_VARIANT, "cpu")  # what a row has that names none
LAPTOP, DESKTOP, SERVER, BOARD = "laptop CPUs", "desktop CPUs", "server CPUs", "single-board computers"
BESIDE_A_PROCESSOR = "integrated GPU"  # the family of a GPU that goes by its processor's name
# Suffixes of mobile processors: i7-8550U, i5-1135G7, i9-13900HX, Ultra 7 258V, Ryzen 7 7840HS, AI 9 HX 370.
_LAPTOP = re.compile(
    r"i\d-\d{4,5}(?:U|Y|M|P|G\d|H|HK|HQ|HX)\b|i\d-\dY\d\d|M-5Y|Ultra \d \d{3}(?:U|H|HX|V)\b"
    r"|\d{4}(?:U|H|HS|HX)\b|HX \d{3}|Ryzen AI|mobile|Framework|Core Ultra (?:1|2)00V?$|Z1"
)
_SERVER = re.compile(r"Xeon|EPYC|Threadripper|Opteron|DO-Premium|Ampere|Graviton|Haswell, no TSX")
_BOARD = re.compile(r"Raspberry|\bPi \d|RK\d|Radxa|RISC-V")
_FORM = re.compile(r"(?:^|-)(sxm|pcie|nvl|oam)")


@functools.cache
def families() -> pd.DataFrame:
    """Return a row per family of accelerators, by name: vendor, kind, and memory_gb and bandwidth_gb_per_s of
    its largest and fastest variant (10⁹ bytes; datasheets count memory in 2³⁰)."""
    cards = hardware.accelerators()
    first = cards.drop_duplicates("family").set_index("family")[["vendor", "kind"]]
    most = cards.groupby("family")[["memory_gb", "bandwidth_gb_per_s"]].max()
    return first.join(most.assign(memory_gb=(most["memory_gb"] * 2**30 / 1e9).round(1)))


def device(rows: pd.DataFrame) -> pd.Series:
    """Return the name under which each row's accelerator is looked up: its family, of a processor its class;
    the backend decides whether the processor or the GPU beside it computed."""
    kinds = families()["kind"]
    family = rows["accelerator_family"].astype(object)
    text = (
        rows["host_cpu"].fillna("") + " " + rows["accelerator_raw"].fillna("") + " " + family.fillna("")
    ).astype(str)
    processor = (family == "CPU") | (family.map(kinds) == "CPU")
    beside = processor & rows["backend_name"].isin(GPU_BACKENDS)
    return family.where(~processor, text.map(_processor)).mask(beside, BESIDE_A_PROCESSOR)


def _processor(text: str) -> str:
    for name, pattern in ((BOARD, _BOARD), (SERVER, _SERVER), (LAPTOP, _LAPTOP)):
        if pattern.search(text):
            return name
    return DESKTOP


@functools.cache
def commonest_variants() -> pd.Series:
    """Return by device the variant that most sources have, of any number of users: what its name means to
    most; of two the one with more rows."""
    rows = build.table()
    named = pd.DataFrame({"device": device(rows), "variant": rows["accelerator"], "source": rows["source"]})
    named = named[~named["variant"].fillna("").isin(NO_VARIANT)]
    counts = named.groupby(["device", "variant"])["source"].agg(["nunique", "size"]).reset_index()
    return counts.sort_values(["nunique", "size", "variant"]).groupby("device")["variant"].last()


@functools.cache
def shapes() -> dict[str, str]:
    """Return each model's name, to the one under which models of the same shape are looked up (llama-3-8b to
    llama-3.1-8b): of equal layers, widths, vocabulary and size, the last by name among the shortest."""
    columns = ["layers", "hidden_size", "intermediate_size", "vocab_size", "parameters_b"]
    models = hardware.models().dropna(subset=columns)
    named: dict[str, str] = {}
    for _, alike in models.groupby(columns)["model"]:
        plain = alike[~alike.str.contains("distill|coder|instruct|guard")]
        together = plain if len(plain) else alike
        named |= dict.fromkeys(alike, max(together, key=lambda name: (-len(name), name)))
    if "llama-3-8b" in named:
        named |= dict.fromkeys(("llama-3-8b", "llama-3.1-8b"), "llama-3.1-8b")
    return named


@functools.cache
def alone_at_any_depth() -> pd.DataFrame:
    """Return `measured` of the published rows of one request at a time, with drafts and without."""
    rows = build.table()
    return on_the_card(rows[alone(rows)])


@functools.cache
def in_host_memory_as_stated() -> pd.DataFrame:
    """Return `measured` of the published rows of one request at a time whose source says that weights lay in
    the host's memory."""
    rows = build.table()
    made = measured(rows[alone(rows) & host_memory_stated(rows)])
    return made[made["rate"] > 0]


def host_memory_stated(rows: pd.DataFrame) -> pd.Series:
    """Return of which rows the source says that weights lay in the host's memory, in words or in bytes."""
    return rows["offload"].notna() | (rows["host_weights_bytes"] > EMBEDDING)


def qualifies(rows: pd.DataFrame) -> pd.Series:
    """Return which rows tell one user's speed in a short context, from what was set, never from the rate."""
    context = rows["context_depth"].fillna(0) + rows["input_tokens"].fillna(0)
    plain = rows["speculative"].isna() | (rows["speculative"] == "none")
    return alone(rows) & plain & (context <= LONGEST_CONTEXT)


def alone(rows: pd.DataFrame) -> pd.Series:
    """Return which rows are of one request at a time on one accelerator, that no check objects to."""
    return (
        (derived.in_flight(rows) == 1)
        & (rows["accelerators"].fillna(1) == 1)
        & rows["comparable_within"].isna()
        & ~(rows["prefill_chunk"] < 64)
        & rows["duplicate_of"].isna()
        & (rows["audit"] == "ok")
    )


def bits_of(rows: pd.DataFrame) -> pd.Series:
    """Return the bucket (a key of BITS) of each row's number format, NaN where it is in none: of GGUF's
    k-quants and of integers the one in the name, though Q3_K_M has 3.9 bits and Q3_K_L more than 4."""
    bits = derived.datasheet(rows)["weight_bits"]
    found = pd.Series(np.nan, index=rows.index)
    for bucket, (low, high) in BITS.items():
        found[(bits >= low) & (bits < high)] = bucket
    formats = pd.Series([form and form.name for form in names.formats(rows)], rows.index, dtype="string")
    named = formats.str.extract(r"(?i)^(?:i?q|int)?(\d)(?:_| bits|$)")[0].astype(float)
    return named.where(named.isin(BITS), found)


def builds(rows: pd.DataFrame) -> pd.Series:
    """Return llama.cpp's build number, NaN where the version says none."""
    number = rows["version_name"].astype("string").str.extract(r"^b(\d{4,5})$")[0].astype(float)
    return number.where(rows["engine"].map(names.engine) == "llama.cpp")


def measured(rows: pd.DataFrame, formats: bool = True) -> pd.DataFrame:
    """Return what each of `rows` (of the checked table) ran and how fast: one column each for what two rows
    have to share, "" where the source states nothing, and rate (tokens/s of one request; `total` of all, per
    accelerator), bound (s, weights ÷ bandwidth of the datasheet), mbu, build. Without `formats` also rows of
    which no number format is known, under their checkpoint's own name."""
    known, figures = derived.datasheet(rows), derived.derived(rows)
    depth = rows["context_depth"].fillna(0) + rows["input_tokens"].fillna(0)
    vendor = rows["accelerator_family"].map(families()["vendor"])
    own = rows["backend_name"].isna() | (rows["backend_name"] == vendor.map(OWN_BACKEND))
    day = rows["measured_on"].fillna(rows["published_on"]).fillna("").astype(str)
    bound = known["read_bytes"] / known["bandwidth_bytes_per_s"] / rows["accelerators"].fillna(1)
    made = pd.DataFrame(
        {
            "row_id": rows["row_id"],
            "source": rows["source"],
            "device": device(rows),
            "variant": rows["accelerator"],
            "form": rows["accelerator"].astype("string").str.extract(_FORM)[0].str.upper(),
            "memory_gb": rows["accelerator_memory_gb"],
            "power_limit_w": rows["power_limit_w"],
            "model": rows["model"].map(lambda name: shapes().get(name, name)),
            "named": rows["model"],
            "checkpoint": rows["checkpoint_raw"],
            "bits": bits_of(rows),
            "format": rows["format_name"],
            "kv": rows["kv_format_name"],
            "engine": rows["engine"].map(names.engine),
            "kernels": rows["engine"].map(lambda name: core_names.engine(name or "").family),
            "version": rows["version_name"],
            "release": rows["version_name"].str.replace(r"^(\d+\.\d+)\..*", r"\1", regex=True),
            "half_year": (day.str[:4] + np.where(day.str[5:7] > "06", " b", " a")).mask(day == "", ""),
            "backend": rows["backend_name"],
            "path": rows["backend_name"].mask(own, "its vendor's own"),
            "flags": rows["flags"],
            "speculative": rows["speculative"],
            "context": pd.cut(depth, CONTEXTS, labels=CONTEXT_NAMES).astype("string"),
            "accelerators": rows["accelerators"],
            "tp": rows["tp"],
            "users": derived.in_flight(rows),
            **{name: rows[name] for name in ("input_tokens", "output_tokens", "quality", "quality_metric")},
            "rate": figures["output_tokens_per_s_per_request"],
            "total": figures["output_tokens_per_s_per_accelerator"],
            "parameters_b": known["parameters"] / 1e9,
            "active_b": known["active"] / 1e9,
            "joules": figures["j_per_output_token"],
            "bound": bound,
            "mbu": figures["mbu"],
            "build": builds(rows),
        },
        index=rows.index,
    )
    texts = made.columns[made.dtypes.map(lambda kind: not pd.api.types.is_numeric_dtype(kind))]
    made[texts] = made[texts].astype(object).where(made[texts].notna(), "")
    known = made["bits"].notna()
    if not formats:
        made["model"] = made["model"].where(known, made["checkpoint"])
        known |= made["model"] != ""
    return made[(made["device"] != "") & known]


@functools.cache
def one_user() -> pd.DataFrame:
    """Return `measured` of the published rows that tell one user's speed, on the accelerator, with the column
    outside: whether half of the weights lay in other memory."""
    rows = build.table()
    made = on_the_card(rows[qualifies(rows)])
    return made.assign(outside=in_host_memory(made))


def in_host_memory(rows: pd.DataFrame) -> pd.Series:
    """Return which of `rows` of cards reach less than a third of the bandwidth that the same card does
    elsewhere: of models that take LEAST_BOUND to read, as the host sets the pace of smaller ones."""
    card = rows["device"].map(families()["kind"]) == "GPU"
    heavy = card & (rows["bound"] >= LEAST_BOUND) & rows["mbu"].notna()
    usual = rows["mbu"].where(heavy).groupby(rows["device"]).transform("median")
    return heavy & (rows["mbu"] < usual / 3)


def on_the_card(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `measured` of `rows` with a rate, but for those that ran on the processor beside a card; that of
    a phone is part of the phone."""
    beside = rows["flags"].astype("string").fillna("").str.contains(r"n_gpu_layers=0\b")
    beside |= host_memory_stated(rows)
    beside |= rows["backend_name"] == "CPU"
    is_processor = rows["accelerator_family"].map(families()["kind"]).isin(["CPU", "phone"])
    is_processor |= rows["accelerator_family"] == "CPU"
    made = measured(rows[(~beside | is_processor).astype(bool)])
    return made[made["rate"] > 0]


@functools.cache
def many_users() -> pd.DataFrame:
    """Return `measured` of the rows of two users or more without drafts, that no check objects to. Their rate
    is of all users per accelerator, or where a source has times alone of decoding (`counted` says which);
    `asked` is how many requests came where nobody says how many were in flight."""
    rows = build.table()
    plain = rows["speculative"].fillna("none") == "none"
    stands = (rows["audit"] == "ok") & rows["duplicate_of"].isna() & rows["comparable_within"].isna()
    users = derived.in_flight(rows)
    asked = rows["requests"].where(users.isna() & rows["workload"].isin(["closed_loop", "open_loop"]))
    rows = rows[stands & plain & ((users >= 2) | (asked >= 2))]
    made = measured(rows, formats=False)
    made = made.join(rows[["workload", "request_rate"]]).assign(asked=asked.reindex(made.index))
    decoding = made["rate"] * made["users"] / made["accelerators"]
    made["counted"] = np.where(made["total"].notna(), "all", "decoding")
    made["rate"] = made["total"].fillna(decoding)
    return made[made["rate"] > 0]
