"""python -m bench.report.tables latency: the table on the terminal."""

import sys

from bench.report.tables import main

try:
    main(sys.argv[1:])
except ValueError as error:
    sys.exit(str(error))
