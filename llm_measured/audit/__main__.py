"""python -m llm_measured.audit FILE...: the same as llm-measured audit."""

import sys

from llm_measured.audit.report import main

sys.exit(main())
