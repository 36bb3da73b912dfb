"""Runs that shared their machine: shown on the pages of that machine, beside nothing that is compared."""

import pandas as pd

from bench.machine import identity
from bench.observations import store
from bench.topics import machines


def added(requests: pd.DataFrame) -> pd.DataFrame:
    """`requests` and, where this checkout's machine is the default, those of its runs that shared it: the
    column shared_by tells them apart."""
    folder = requests.attrs.get("folder")
    files = store.files(store.shared_folder(folder)) if folder and machines.is_here_in_front() else []
    if not files:
        return requests
    rows = store.load(files, shared=True)
    both = pd.concat([requests, rows[rows["host"] == identity.host()]], ignore_index=True)
    both.attrs = requests.attrs
    return both
