"""What the notebooks call: parameters, the session of a run, one file per experiment."""
