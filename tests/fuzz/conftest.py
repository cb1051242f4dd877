"""Where the fuzzers find each other and the makers of valid files."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("calibration", "clip/loading"))]
