"""`python -m dtpt`: the same as `dtpt`, for where scripts are not on the path."""

from dtpt.cli.main import run

if __name__ == "__main__":
    run()
