"""Reports: what analysis found, as text, tables and pages."""
