"""The tests of `pretended` and `interpreted` need a process of their own, whose plugin came before torch or triton."""

import sys

_PLUGINS = {"pretended": "tests.gpu.plugin", "interpreted": "tests.gpu.interpreter"}
collect_ignore = [folder for folder, plugin in _PLUGINS.items() if plugin not in sys.modules]
