"""Pages and pictures of `llm_measured.audit`, and its audit of our own runs."""
