"""The `structspec` command."""


def main() -> int:
    """Run the command line; returns the exit status."""
    raise NotImplementedError
