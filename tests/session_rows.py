"""Made-up rows of loads of sessions, with a cache that answers all but the last 50 tokens of a later turn."""

from bench.observations import schema


def frame(rows):
    table = schema.frame(rows)
    return table.assign(started=[row.get("started", "2026-01-01") for row in rows], tpot_s=0.01)


def row(session, turn, cache=1000.0, run=1, **columns):
    """A turn of 100 tokens a turn, all but its last 50 in the cache where there is one."""
    prompt = 100.0 * turn
    hit = prompt - 50 if cache and turn > 1 else 0.0
    usual = {
        "run_id": f"fake/conversations-m-o-g-h-{run}", "experiment": "conversations", "backend": "fake",
        "backend_version": "1", "option": "o", "model": "m", "weights": "real", "gpu": "g", "host": "h",
        "workload": "conversations", "arrivals": "poisson", "history": "given", "session_rate": 0.5,
        "cache_capacity_tokens": cache, "session": session, "turn": turn, "prompt_tokens": prompt,
        "cached_tokens": hit, "expected_cached_tokens_low": hit, "expected_cached_tokens_high": hit,
        "sent_s": 10.0 * session + turn, "late_s": 0.0, "waited_s": 0.0, "error": "",
        "ttft_s": 0.001 * (prompt - hit), "started": f"2026-01-0{run}",
    }  # fmt: skip
    return usual | columns


def load(cache=1000.0, run=1, sessions=4, turns=3, **columns):
    return [row(s, t, cache, run, **columns) for s in range(1, sessions + 1) for t in range(1, turns + 1)]
