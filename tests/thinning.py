"""Which cases of a long list `make test` tries; `make check` tries the others."""

import pytest


def a_third(cases):
    """Every third of `cases` as it is, the others as parameters of `make check`."""
    return [pytest.param(case, marks=pytest.mark.check) if k % 3 else case for k, case in enumerate(cases)]
