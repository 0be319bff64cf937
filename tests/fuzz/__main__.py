"""Fuzz from the command line.

python -m tests.fuzz --minutes 30                     every target in turn, with new chance, until the time is over
python -m tests.fuzz --target object-checkpoint       one target
python -m tests.fuzz --target merge --input FILE      try one input again
python -m tests.fuzz --atheris object-manifest        libFuzzer, guided by coverage, where atheris is installed

What breaks a promise is kept in fuzz-findings/; once mended, it belongs into tests/fuzz/corpus/.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.fuzz.engine import NAMES, corpus_of, fuzz, targets
from tests.fuzz.target import BrokenPromiseError, Target

FINDINGS = Path("fuzz-findings")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz decoders, keys and URLs.")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, all targets together")
    parser.add_argument("--target", action="append", choices=sorted(NAMES), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, help="of all chance; a new one by default, which is printed")
    parser.add_argument("--input", type=Path, help="try this input, with one --target")
    parser.add_argument("--atheris", choices=sorted(NAMES), help="let libFuzzer choose the inputs of a target")
    options = parser.parse_args()
    if options.atheris:
        return run_atheris(targets()[options.atheris], options.minutes)
    chosen = options.target or list(NAMES)
    if options.input:
        target, data = targets()[chosen[0]], options.input.read_bytes()
        tell(target.check(data))
        tell(target.check(data, memory=True))
        return 0
    seed = secrets.randbits(32) if options.seed is None else options.seed
    tell(f"seed {seed}")
    broken = 0
    for name in chosen:
        try:
            tell(fuzz(targets()[name], seed, seconds=60 * options.minutes / len(chosen), findings=FINDINGS))
        except BrokenPromiseError as error:
            tell(f"BROKEN {error}")
            broken += 1
    return 1 if broken else 0


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run_atheris(target: Target, minutes: float) -> int:
    """Let libFuzzer choose inputs, with our changes of valid ones as its mutator."""
    import atheris  # type: ignore[import-untyped]

    for name in [name for name in sys.modules if name.startswith("arraystore._format")]:
        for part in vars(sys.modules[name]).values():
            if callable(part) and getattr(part, "__module__", "") == name and hasattr(part, "__code__"):
                atheris.instrument_func(part)
    corpus = FINDINGS / "atheris" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*target.seeds, *corpus_of(target)]):
        (corpus / f"seed-{number}").write_bytes(data)

    def one(data: bytes) -> None:
        target.check(data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        from random import Random

        rng = Random(seed)
        return (target.change(rng, data, target) if rng.random() < 0.9 else atheris.Mutate(data, most))[:most]

    arguments = [sys.argv[0], str(corpus), f"-max_total_time={int(60 * minutes)}", "-rss_limit_mb=2048"]
    atheris.Setup([*arguments, f"-artifact_prefix={FINDINGS}/"], one, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
