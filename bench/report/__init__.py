"""Figures, tables, sentences and pages made of what the analysis gives."""
