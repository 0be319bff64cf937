"""Entry point of ``python -m arraystore.cli``."""

import sys

from arraystore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
