"""``python -m arraystore.cli``, for where the script is not on PATH."""

import sys

from arraystore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
