"""NVIDIA's measured points that aiconfigurator's predictions are compared with: mean TTFT and TPOT per
request.

Rules of this source alone. The file does not say which statistic its times are: where a row equals one of
InferenceX's to the last digit it is the mean (check `same_numbers`), so all are imported as means.
`model_path` names DeepSeek-V3 or R1 for runs of InferenceX's `dsr1`: the id of the row, or `model=` of
its source, decides. `batch_size` is the concurrency of one copy of the model, and of one rank where
attention is split by users: where it is below the stated concurrency otherwise, several copies served it.
There is no throughput column."""

import re
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, joined, number
from llm_measured.published.sources import about

ABOUT = about("aiconfigurator")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        for at, r in raw.csv(file):
            origin = str(r["silicon_data_source"] or "")
            told = dict(part.strip().split("=", 1) for part in origin.split(";") if "=" in part)
            image = re.search(r"(?:image=|; )([\w.-]+[/#][\w./#-]+:[\w.-]+)", origin)
            checkpoint, printed = r["model_path"], {}
            if (
                re.match(r"dsr1|.*deepseek[_-]?r1", str(r["id"]).lower())
                or told.get("model") == "DeepSeek-R1"
            ):
                checkpoint, printed = "DeepSeek-R1", {"checkpoint_raw": r["model_path"]}
            apart = r["mode"] == "disagg"
            cards = _cards(r, "prefill_"), _cards(r, "decode_")
            users = told.get("silicon_concurrency") or (None if apart else r["batch_size"])
            copies = 1 if apart else _copies(r, number(users))
            own = _cards(r, "")
            yield at.row(
                printed=printed | {"statistic": None},
                original_id=r["id"],
                measured_on=told.get("measured", "")[:10] or None,
                measured_by=None if re.match(r"db-dump|source_file=\d{4}-", origin) else "NVIDIA",
                accelerator_raw=r["system"],
                accelerators=(sum(cards) if None not in cards else None) if apart else own and own * copies,
                accelerators_prefill=cards[0] if apart else None,
                accelerators_decode=cards[1] if apart else None,
                engine=r["backend"],
                engine_version=r["backend_version"],
                image=image[1].replace("#", "/") if image else None,
                flags=joined(disaggregated=apart, config=told.get("config_id"), wip=told.get("wip")),
                checkpoint_raw=checkpoint,
                weights_format=r["precision"],
                tp=number(r["decode_tp_size" if apart else "tp_size"]),
                pp=number(r["decode_pp_size" if apart else "pp_size"]),
                ep=number(r["decode_moe_ep_size" if apart else "moe_ep_size"]),
                dp=copies if copies > 1 else None,
                workload="closed_loop",
                concurrency=users,
                input_tokens=r["isl"],
                output_tokens=r["osl"],
                lengths="max",
                ttft_mean_ms=r["silicon_ttft_ms"],
                tpot_mean_ms=r["silicon_tpot_ms"],
                statistic="mean",
            )


def _cards(r: dict, prefix: str) -> float | None:
    sizes = [number(r[prefix + name]) for name in ("tp_size", "pp_size", "attention_dp_size")]
    workers = number(r[prefix + "num_workers"]) if prefix else 1
    if sizes[0] is None or workers is None:
        return None
    return sizes[0] * (sizes[1] or 1) * (sizes[2] or 1) * workers


def _copies(r: dict, users: float | None) -> float:
    ranks, batch = number(r["attention_dp_size"]), number(r["batch_size"])
    if ranks is None or not users or not batch:
        return 1
    copies = users / (batch * max(ranks, 1))
    return copies if copies > 1 and copies.is_integer() else 1
