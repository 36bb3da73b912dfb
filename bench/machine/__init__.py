"""Who this machine is, its GPU, its peaks, its neighbours, and how much memory an engine holds."""
