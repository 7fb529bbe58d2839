"""For tests: scripts/aws in a process that is forked off one in which everything is loaded, as it is started often."""

import os
import sys

from cloud import aws, main

aws.FIRST_PAUSE_S = 0.01
# The description of the provider's interface, which takes most of the time.
aws.client("eu-central-1", "ec2")
aws.client("eu-central-1", "sts")


def run(arguments, log, environment):
    """Ends with the program's exit code. Standard error goes to the file `log`, standard output to `log`.out."""
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 2)
    out = os.open(log + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(out, 1)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    try:
        code = main.main(arguments)
    except SystemExit as end:  # of the parser of arguments
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
