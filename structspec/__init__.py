"""Validated structured output from language models."""
