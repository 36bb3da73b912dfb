"""The replay against the server that knows: a made trace, scaled down; what would break the promise."""

import numpy as np
import pandas as pd
import pytest

from bench.analysis import conversations
from bench.experiments import replay_proof

pytestmark = pytest.mark.usefixtures("watchdog")


def test_a_made_trace_has_its_rate_and_its_bursts():
    moments = np.array([session.turns[0].at_s for session in replay_proof.made(100.0, 60.0).sessions])
    assert len(moments) == 6000 and (np.diff(moments) >= 0).all() and moments.max() < 60
    burst = ((moments >= 30.0) & (moments <= 30.01)).sum()
    assert burst >= replay_proof.BURST


@pytest.mark.timing
@pytest.mark.check
def test_requests_leave_at_their_moments():
    """Scaled down, and on a busy machine: what is promised is measured by `python -m
    bench.experiments.replay_proof`."""
    row = replay_proof.judged("made", 1.0, replay_proof.made(100.0, 4.0))
    assert row["requests"] == 400 and row["seconds"] == pytest.approx(4.0, abs=0.1)
    assert 0 <= row["late_p50_ms"] < 5 and row["late_p50_ms"] <= row["late_p99_ms"] <= row["late_max_ms"]
    assert row["dispersion_1s_sent"] == pytest.approx(row["dispersion_1s_schedule"], rel=0.2)


def test_what_breaks_the_promise_is_named():
    kept = {"trace": "made", "time_scale": 1.0, "late_p99_ms": 0.9}
    kept |= {f"dispersion_{w}s_{what}": 2.0 for w in conversations.WINDOWS_S for what in ("schedule", "sent")}
    late, smooth = kept | {"late_p99_ms": 1.2}, kept | {"dispersion_1s_sent": 1.0}
    assert conversations.broken(pd.DataFrame([kept])) == []
    said = conversations.broken(pd.DataFrame([late, smooth]))
    assert len(said) == 2 and "1.2 ms late" in said[0]
    assert "variance/mean in 1 s is 1, the schedule's 2" in said[1]
