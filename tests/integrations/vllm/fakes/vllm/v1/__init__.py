"""Of vLLM's engine core."""
