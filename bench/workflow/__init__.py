"""From study.yaml to runs: plan, executed notebooks, bundles."""
