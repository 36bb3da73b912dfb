"""The load client: closed and open loops over streaming HTTP, one clock, many streams."""
