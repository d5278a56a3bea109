"""The tests of `pretended` need a process of their own, whose plugin came before torch."""

import sys

collect_ignore = [] if "tests.gpu.plugin" in sys.modules else ["pretended"]
