"""Who this machine is, its GPU, its roofs, its neighbours, and how much memory an engine holds."""
