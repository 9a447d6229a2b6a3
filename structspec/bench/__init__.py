"""Scores anyone can run: `structspec bench grammars` beside the bare libraries."""
