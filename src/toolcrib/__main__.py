"""`python -m toolcrib` is `toolcrib`."""

from toolcrib.cli.main import run

if __name__ == "__main__":
    run()
