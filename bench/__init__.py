"""The measuring instrument of *LLM inference, measured*: study.yaml -> notebook -> CSV -> DataFrame -> figure
/ table -> page."""
