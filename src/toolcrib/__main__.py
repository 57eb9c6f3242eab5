"""`python -m toolcrib` is `toolcrib`."""

from toolcrib.cli.entry import run

if __name__ == "__main__":
    run()
