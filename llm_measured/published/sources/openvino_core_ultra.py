"""Intel's table of LLMs under OpenVINO on a Core Ultra 7 368H, built-in GPU: one sequence, first and
following tokens' times. It was copied by hand from the page; the rate has to be 1,000 ÷ the time of a
token, or the row carries a caveat, as does one whose model, format and length stand in the table again with
another number (how those lines differ is not stated)."""

from collections import Counter
from collections.abc import Iterator

from llm_measured.published.reading import LeftOut, Raw, Row, number
from llm_measured.published.sources import about
from llm_measured.published.sources._tables import single

ABOUT = about("openvino-core-ultra")


def rows(raw: Raw) -> Iterator[Row | LeftOut]:
    for file in raw.files(*ABOUT.files):
        lines = list(raw.csv(file))
        settings = Counter((r["Topology"], r["Precision"], r["Input Size"]) for _, r in lines)
        for at, r in lines:
            gap, speed = number(r["2nd latency (ms)"]), number(r["2nd token per sec"])
            caveats = []
            if not gap or not speed or abs(speed * gap / 1000 - 1) > 0.001:
                caveats.append("rate and time of a token contradict each other")
            if settings[r["Topology"], r["Precision"], r["Input Size"]] > 1:
                caveats.append("the same setting stands in the table again with another number")
            yield at.row(
                **single(speed),
                accelerator_raw="Intel Core Ultra 7 368H (integrated GPU)",
                accelerators=1,
                engine="OpenVINO",
                checkpoint_raw=r["Topology"],
                weights_format=r["Precision"],
                input_tokens=r["Input Size"],
                lengths="exact",
                ttft_mean_ms=r["1st latency (ms)"],
                tpot_mean_ms=gap,
                caveat="; ".join(caveats) or None,
            )
