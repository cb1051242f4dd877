"""What the tests of commands run in processes of their own."""

# A shell that starts the tests in the background ignores Ctrl-C, and children inherit that.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from dtpt.cli.main import run; run()"
)
