"""What the adapters expect of the engines, checked against the engines' own packages without a GPU."""
