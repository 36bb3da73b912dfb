"""A machine that nobody else uses and of which nothing is measured."""


class Probe:
    """In place of `bandwidth.Bandwidth`, whose probes take their time: every one finds 4 TB/s.

    The fake engine reads little enough for that even where a busy machine bunches its tokens.
    """

    def __init__(self, device, threads):
        self.probes, self.working_set_probes, self.cpu_shares, self.ways = [], [], [], []

    def probe(self):
        self.probes.append(4e12)
        self.cpu_shares.append(1.0)
        self.ways.append({"fake": 4e12})

    def __exit__(self, *_):
        pass


class Alone:
    """In place of `neighbours.Neighbours`: a machine of its own."""

    def cores(self):
        return {"others": 0.0, "steal": 0.0}
