"""A stand-in for the parts of vLLM that structspec.integrations.vllm touches.

Names, parameters and fields are vLLM's, which tests/integrations/vllm/check_wheel.py compares with
a wheel's sources; what stands in them is as little as its contracts need.
"""
