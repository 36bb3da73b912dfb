"""Every openly published measurement of LLM inference speed in one table, checked: one row per measured
point.

`sources/<name>.py` says where a source's columns are and what they count, `schema` declares the columns,
`checks` finds by arithmetic what cannot be, `derived` computes at reading, `build` joins all of it."""
