"""Where a run comes from: revision, time, installed packages."""

import subprocess
from datetime import datetime, timezone

from bench.paths import ROOT


def git_state():
    """Revision and whether anything but observations, exports and the README's figures differs from it."""

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True
        ).stdout.strip()

    return {
        "revision": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--", "bench", "notebooks", "data", "study.yaml")),
    }


def now():
    """The time in UTC, to the second, as sidecars give it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def packages():
    """Name -> version of every installed distribution."""
    from importlib.metadata import distributions

    return dict(
        sorted(
            {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}.items(),
            key=lambda kv: kv[0].lower(),
        )
    )
