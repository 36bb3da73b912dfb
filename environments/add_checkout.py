"""Let the Python that runs this file import the study, and the packages beside it, from its checkout.

python environments/add_checkout.py    # writes study.pth beside the installed packages
"""

import site
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
Path(site.getsitepackages()[0], "study.pth").write_text(f"{CHECKOUT}\n", encoding="utf-8")
