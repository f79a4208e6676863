"""Web pages (Mind2Web): generated websites with tasks, and an oracle that knows the gold steps.

The oracle plans as an agent can that does not see the pages: it names the element in the site's words, and where nothing in the
task determines them, in words that fit (`said`). The product continues every episode with the gold steps, so that a later subgoal
may use the words of the steps before.
"""

from .oracle import CONSTANTS, Oracle
from .tasks import generate

__all__ = ["CONSTANTS", "Oracle", "generate"]
