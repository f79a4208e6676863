"""Training of the built-in agents for question answering, SQL, the shop and web pages.

The model, its export and the training loop are those of `training/tiny`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tiny"))
