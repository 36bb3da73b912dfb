"""The measuring instrument: the clock, the load client, the server that knows the truth."""
