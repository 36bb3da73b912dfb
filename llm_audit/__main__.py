"""python -m llm_audit FILE...: the same as llm-audit."""

import sys

from llm_audit.report import main

sys.exit(main())
