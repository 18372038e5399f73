"""The fuzzers for as long as one likes: `python -m tests.fuzz --inputs 1000000 --target codec`.

Every input is written to FOLDER/TARGET-current before it is tried: what ends the process, or never ends, is there
too. `--atheris` lets coverage guide the inputs (`pip install -e ".[fuzz]"`).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TARGETS = ("codec", "wav", "tokenizer", "formats")
HANGS_AFTER = 20.0
"""Seconds that one input may take on a machine that is busy otherwise."""
MEMORY_EVERY = 100
"""One in so many inputs is tried again with its allocations traced, which is slow."""
MOST_FAULTS = 10
"""Different ones, after which a run ends."""
LONGEST_INPUT = 1 << 16


class Target(Protocol):
    """What a module of this folder has to offer."""

    SEEDS: Sequence[bytes]
    """Inputs to start from when coverage guides."""

    def generate(self, dice: random.Random) -> bytes:
        """A new input."""

    def check(self, data: bytes) -> str:
        """Try an input; raises when a rule is broken, else names what came of it."""


def load(name: str) -> Target:
    """The module of a target; imported late, so that atheris can watch what it imports."""
    return cast("Target", importlib.import_module(f"tests.fuzz.{name}"))


class Run:
    """Some inputs for one target, and what came of them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.outcomes: Counter[str] = Counter()
        self.faults: dict[str, Path] = {}
        """Where each different fault was raised -> the first input that did it."""
        self._target = load(name)
        self._folder = folder
        self._current = folder / f"{name}-current"

    def go(self, inputs: int, seed: int) -> None:
        """Try generated inputs until there are enough, or too many faults."""
        dice = random.Random(seed)  # noqa: S311  seeded on purpose
        began = told = time.monotonic()
        descriptor = os.open(self._current, os.O_WRONLY | os.O_CREAT, 0o600)
        for number in range(1, inputs + 1):
            data = self._target.generate(dice)
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
            self.attempt(data, memory=number % MEMORY_EVERY == 0)
            if len(self.faults) >= MOST_FAULTS:
                break
            if (now := time.monotonic()) - told > 5 or number == inputs:
                say(f"{self.name}: {number} of {inputs} inputs in {now - began:.0f} s, {len(self.faults)} faults")
                told = now
        os.close(descriptor)
        self._current.unlink()

    def attempt(self, data: bytes, *, memory: bool) -> None:
        """Try one input; a fault that was not seen before is saved and told."""
        try:
            with no_longer_than(HANGS_AFTER):
                self.outcomes[self._target.check(data)] += 1
            if memory and (check_memory := getattr(self._target, "check_memory", None)):
                check_memory(data)
        except Exception as error:  # noqa: BLE001  any of them is what is looked for
            self.outcomes["FAULT"] += 1
            self._note(error, data)

    def _note(self, error: Exception, data: bytes) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
        if place in self.faults:
            return
        digest = hashlib.sha256(data).hexdigest()[:16]
        self.faults[place] = path = self._folder / f"{self.name}-{digest}"
        path.write_bytes(data)
        say("".join(traceback.format_exception(error)))
        say(f"{place}; to see it again: python -m tests.fuzz --replay {path}")

    def summary(self) -> str:
        """One line for people."""
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        return f"{self.name}: {self.outcomes.total()} inputs, {len(self.faults)} faults ({outcomes})"


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body when it takes longer, where the system has timers."""

    def expired(*_: object) -> NoReturn:
        raise TimeoutError(f"no end after {seconds} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def replay(path: Path, name: str | None) -> int:
    """Try a saved input, without catching what it raises."""
    name = name or path.name.partition("-")[0]
    if name not in TARGETS:
        raise SystemExit(f"{path}: name its target with --target")
    target, data = load(name), path.read_bytes()
    result = target.check(data)
    check_memory: Callable[[bytes], None] | None = getattr(target, "check_memory", None)
    if check_memory is not None:
        check_memory(data)
    sys.stdout.write(f"{path}: no fault any more ({result})\n")
    return 0


def follow_coverage(name: str, inputs: int, seed: int, folder: Path) -> NoReturn:
    """Hand over to atheris, which ends the process: 0 without a fault, else not, with the input in `folder`."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        raise SystemExit('atheris is not installed: pip install -e ".[fuzz]"') from None
    with atheris.instrument_imports(include=["susurrus"]):
        target = load(name)
    corpus = folder / f"{name}-corpus"  # what reached something new is found again the next night
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate(target.SEEDS):
        (corpus / str(number)).write_bytes(data)

    def mutated(data: bytes, most: int, number: int) -> bytes:
        if number % 4:
            return cast("bytes", atheris.Mutate(data, most))
        return target.generate(random.Random(number))[:most]  # noqa: S311  seeded by libFuzzer

    options: dict[str, object] = {
        "atheris_runs": inputs,
        "seed": seed or 1,
        "max_len": LONGEST_INPUT,
        "timeout": int(HANGS_AFTER),
    }
    options |= {"artifact_prefix": f"{folder}/{name}-", "rss_limit_mb": 2048}
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], target.check, custom_mutator=mutated)
    atheris.Fuzz()
    raise SystemExit(0)


def say(text: str) -> None:
    """Progress goes to stderr."""
    sys.stderr.write(f"{text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feed the parsers with what breaks them.")
    parser.add_argument("--inputs", type=int, default=10_000, help="how many for each target (default: 10000)")
    parser.add_argument("--target", choices=(*TARGETS, "all"), help="which parser (default: all)")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--atheris", action="store_true", help="let coverage guide the inputs; one target only")
    parser.add_argument("--folder", type=Path, help="for failing inputs (default: susurrus-fuzz among temporary files)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try a failing input again")
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay, options.target)
    folder = options.folder or Path(tempfile.gettempdir()) / "susurrus-fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    seed = random.SystemRandom().getrandbits(31) if options.seed is None else options.seed
    say(f"seed {seed}")
    if options.atheris:
        if options.target not in TARGETS:
            parser.error("--atheris needs one --target")
        follow_coverage(options.target, options.inputs, seed, folder)
    faults = 0
    for name in TARGETS if options.target in {None, "all"} else (options.target,):
        run = Run(name, folder)
        run.go(options.inputs, seed)
        sys.stdout.write(run.summary() + "\n")
        faults += len(run.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
