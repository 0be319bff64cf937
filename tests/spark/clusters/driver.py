"""A driver process: ``python -m tests.spark.clusters.driver module:function answer.json '{"argument": ...}'``."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    module, function = sys.argv[1].split(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[3]))
    answer = Path(sys.argv[2])
    answer.with_suffix(".new").write_text(json.dumps(result))
    os.replace(answer.with_suffix(".new"), answer)


if __name__ == "__main__":
    main()
