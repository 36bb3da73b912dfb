"""Arithmetic and names that audit, published rows and the study share."""
