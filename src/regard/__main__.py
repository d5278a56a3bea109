"""python -m regard: the same as the command regard, for torchrun -m regard and where no script is installed."""

import sys

from regard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
