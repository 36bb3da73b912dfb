"""From study.yaml to observations: what to measure, running one notebook, progress, the report at the end."""
