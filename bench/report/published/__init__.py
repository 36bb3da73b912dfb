"""Figures, tables, findings and pages of `llm_measured.published`."""
