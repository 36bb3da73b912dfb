"""What the gates allow, in numbers, and the exception that says what was not."""

# The first counted request may be slower than the slowest of the others by this factor, else the warm-up had
# not settled. Two, because other tenants of its host may take half of a small virtual machine's memory
# bandwidth from one second to the next.
WARM_FACTOR = 2.0
WARMUPS = 20  # on a GPU: warm-up requests at most
SETTLED = 0.03  # how far time and clock of two warm-up requests in a row may be apart once a GPU has settled
WARM_SLACK_S = 0.001  # what the scheduler alone may take, which is many times what a toy engine does
# Mean number of cores that other processes may keep busy during a run: background services pass, a second job
# does not.
BUSY_CORES = 0.5
# Mean number of cores that the hypervisor may give to other virtual machines during a run, and the share of
# its time that a container's quota may hold the run's threads back.
STEAL_CORES = 0.1
THROTTLED_SHARE = 0.01
# Events of an answer that follow each other faster than this on average came in one lump: a proxy had kept
# them. A step of the smallest model on the fastest GPU takes several times as long.
EVENT_GAP_S = 5e-5
LUMP_EVENTS = 8  # an answer with fewer events than this says nothing of them
CLOCK_DRIFT = 0.1  # how far a GPU's clock after a run may be from the one before
# How late the load client may be in the 99th percentile, as a share of the gap between two scheduled
# requests.
LATE_SHARE = 0.01


class Refused(ValueError):
    """A run that may not be published; the message says which gate refused it and why."""


def settled(warmup):
    """Whether the last two warm-up requests took the same time at the same clock, within SETTLED.

    `warmup`: dicts with e2e_s and, where there is a GPU, clocks.sm in MHz.
    """
    pairs = [[request.get(name) for request in warmup[-2:]] for name in ("e2e_s", "clocks.sm")]
    return len(warmup) > 1 and all(
        None in pair or abs(pair[0] - pair[1]) <= SETTLED * max(pair) for pair in pairs
    )


def too_late(rate, behind_s):
    """Why a level of `rate` scheduled requests/s does not count, in a sentence; empty where it does.

    `behind_s`: how late the load client was, 99th percentile over its requests.
    """
    if not behind_s > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind_s * 1e3:.2g} ms "
        f"behind schedule (99th percentile), and {LATE_SHARE:.0%} of the gap between them is "
        f"{LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
    )


def late(rows):
    """`too_late` of one level of scheduled requests; `rows`: columns request_rate (1/s) and late_s (s)."""
    return too_late(rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99))
