"""python -m llm_planner check FILE: the same as llm-planner."""

import sys

from llm_planner.command import main

sys.exit(main())
