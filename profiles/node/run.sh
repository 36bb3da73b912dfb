#!/bin/sh
# The study on a node without network that has its own PyTorch: installs from wheels/, measures, packs the results.
#
#     pip download --dest wheels --requirement environments/node.txt     here; leave out what the node has (torch-*, nvidia_*, triton-*)
#     sh profiles/node/run.sh BUDGET=8 DEVICE=cuda ENGINES=transformers  there, in this checkout with wheels/ in it
#
# All wheels that lie there are installed, so an engine comes along as its wheel (environments/vllm-cuda.txt says which of vLLM's).
# What follows the script goes to `make study`. PYTHON=/path/to/python is the node's Python that has PyTorch (default: python3),
# SHARES="vllm-cuda" the engines' own environments that are this one too, RESULTS=file.tar.gz where the new runs and logs go.
# A second call installs nothing again, and the study goes on where it was.
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
RESULTS=${RESULTS:-results.tar.gz}
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$PWD/wheels" PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_OFFLINE=1

if [ ! -d wheels ]; then
  echo "There is no folder wheels/ here: pip download --dest wheels --requirement environments/node.txt, where there is a network." >&2
  exit 2
fi
if [ ! -e .venv/ready ]; then
  "$PYTHON" -m venv --clear --system-site-packages .venv
  # --system-site-packages shows the system's packages only; PyTorch may be in a virtual environment, or in a module's folder.
  "$PYTHON" - .venv "$PWD" <<'PTH'
import sys
from pathlib import Path

(site,) = Path(sys.argv[1]).glob("lib/python*/site-packages")
folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
lines = [sys.argv[2], *(f"import site; site.addsitedir({folder!r})" for folder in folders)]
(site / "node.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
PTH
  .venv/bin/python -m pip install --quiet --requirement environments/node.txt
  # Whatever else was carried, such as an engine, goes in as it is: what of its dependencies is needed lies beside it, or is the node's.
  .venv/bin/python -m pip install --quiet --no-deps wheels/*.whl
  .venv/bin/python -m pip check || echo "The node's own versions are used all the same." >&2
  for name in ${SHARES:-}; do
    mkdir -p .venvs
    ln -sfn ../.venv ".venvs/$name"
  done
  touch .venv/ready
fi

# Whatever ends the study, a full budget or a signal: what was measured until then is packed.
pack() {
  mkdir -p logs
  { git ls-files --others --exclude-standard -- _llama-inference; echo logs; } | tar --create --gzip --file "$RESULTS" --files-from -
  echo "New runs and logs: $RESULTS. Unpack it over your checkout, then: make contribute"
}
trap pack EXIT
trap 'exit 130' INT TERM
make --old-file=.venv/ready study "$@"
