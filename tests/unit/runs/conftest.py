"""Makes the small evaluators in ``toy_runs`` importable here and in worker processes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
