"""The measuring instrument of *LLM inference, measured*: study.yaml -> notebook -> CSV -> DataFrame -> figure / table -> page."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
