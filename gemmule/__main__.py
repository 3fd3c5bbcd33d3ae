"""``python -m gemmule``: the command line."""

from gemmule.sw.cli import main

if __name__ == "__main__":
    main()
