"""`python -m labeltrace` is the command."""

from labeltrace.cli import main

if __name__ == "__main__":
    main()
