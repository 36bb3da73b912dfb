"""What was found plausible: figures that were compared with the device or with each other, and fit."""

import numpy as np

from llm_measured.audit import frame
from llm_measured.audit.checks import identities
from llm_measured.audit.checks.answers import failed_wholly
from llm_measured.audit.checks.finding import ALARMS, Finding, number
from llm_measured.audit.checks.impossible import RATES, devices_named, named, operations, peaks, steps

OF_SUMS = {one.check for one in identities.IDENTITIES}
SHOWN = 0.05  # of an identity that fits


def sentences(audited: frame.Audited, findings: list[Finding]) -> list[tuple[str, str]]:
    """(file, sentence) for each comparison with the device or among the file's own figures that came out
    right,
    in files without an impossible or contradictory finding of that kind."""
    alarms = {(f.check, name) for f in findings for name in f.file.split(" and ") if f.kind in ALARMS}
    out = []
    for file in dict.fromkeys(audited.levels["file"]):
        one = audited.of_levels(audited.levels["file"] == file)
        one = one.of_levels(~failed_wholly(one))
        if one.levels.empty:
            continue
        if ("bandwidth_beyond_device", file) not in alarms:
            out += [(file, text) for text in (_bandwidth(one), _compute(one)) if text]
        if not any((name, file) in alarms for name in OF_SUMS) and (text := _sums(one)):
            out.append((file, text))
    return out


def _bandwidth(audited):
    peak, (step, assumed) = peaks(audited), steps(audited)
    mbu = peak["step_bytes"] / step / peak["bandwidth_bytes_per_s"]
    mbu = mbu.where((peak["counted"] | (peak["devices"] == 1)) & ~assumed & (mbu <= 1.02) & (mbu > 0))
    if not mbu.notna().any():
        return None
    level, k = audited.levels.set_index("level"), mbu.idxmax()
    more = f", the most of {int(mbu.notna().sum())} levels" if mbu.notna().sum() > 1 else ""
    if not peak.at[k, "counted"]:
        more += ", if it was one (state how many: --tensor-parallel 1)"
    return (
        f"{named(level, k)} reads {number(peak.at[k, 'step_bytes'] / 1e9)} GB every {number(step[k] * 1e3)} "
        f"ms = {mbu[k]:.0%} of the {number(peak.at[k, 'bandwidth_bytes_per_s'] / 1e9, 4)} GB/s that "
        f"{devices_named(level, peak, k)}{more}."
    )


def _compute(audited):
    if not audited.levels_have(*RATES):
        return None
    _, _, of_prompts, of_outputs = operations(audited)
    share = (of_prompts.fillna(0) + of_outputs).where(peaks(audited)["counted"])
    share = share.where(share.between(0.01, 1.02))
    if not share.notna().any():
        return None
    return f"Its tokens/s need {share.max():.0%} of the device's peak of operations (most)."


def _sums(audited):
    f = identities.facts(audited)
    apart = np.abs(identities.quotients(f) - 1)
    fits = (apart <= np.minimum(identities.tolerances(audited), SHOWN)) & (f["request"] == 0)
    equal = [
        k for k, one in enumerate(identities.IDENTITIES) if fits[k].any() and not (one.assumed or one.most)
    ]
    if not equal:
        return None
    worst = max(apart[k][fits[k]].max() for k in equal)
    names = "; ".join(identities.IDENTITIES[k].name for k in equal)
    return f"Adds up, within {max(worst, 0.0001):.2%}: {names}."
