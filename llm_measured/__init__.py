"""Audit and compare measurements of LLM inference: works on anybody's files, without PyTorch."""
