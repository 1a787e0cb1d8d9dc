#!/usr/bin/env python3
"""Runs test binaries of the workspace beside each other: run-tests.py [OPTION...] [-- ARGUMENT...]

    --jobs N          binaries that run at once; 2
    --test TARGET     only test targets with this name, as for Cargo
    --without TARGET  all but test targets with this name
    --only NAME       one binary, as it is named in the output: "plimsoll-xds suite"
    --doc             doc tests too, as one more binary

Cargo runs one binary after the other, although most of them wait more than they compute. Here Cargo builds them and
starts each with this script as its runner, which only notes command, directory and environment; then they run as
noted. All run, the output of each is printed when it ends, and those that failed are named at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The command line of all steps: with other packages or features Cargo would compile the workspace again.
CARGO = ["cargo", "test", "--workspace", "--all-features"]
# Those that take longest, longest first: they start first, so that none of them runs alone at the end. The simulator
# computes, the others mostly wait.
LONGEST = [
    "doc tests",
    "plimsoll-sim suite",
    "plimsoll-control plimsoll_control",
    "plimsoll-proxy suite",
    "plimsoll-attacks attacks",
    "plimsoll-client suite",
    "plimsoll-control suite",
    "plimsoll-documents documented",
    "plimsoll-e2e e2e",
    "plimsoll-envoy e2e",
]


def note(directory, command):
    """What Cargo runs instead of a test binary."""
    noted = {"command": command, "directory": os.getcwd(), "environment": dict(os.environ)}
    with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
        json.dump(noted, file)


def name_of(noted):
    """Package and target of a test binary: `plimsoll-xds suite`, `plimsoll-xds plimsoll_xds` for its unit tests."""
    target = Path(noted["command"][0]).stem.rpartition("-")[0]
    return f"{noted['environment']['CARGO_PKG_NAME']} {target}"


def build(selection):
    """Compiles; prints what Cargo prints, without the list of what it built."""
    command = [*CARGO, *selection, "--no-run"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as building:
        for line in building.stderr:
            if not line.startswith("  Executable "):
                sys.stderr.write(line)
    if building.returncode != 0:
        sys.exit(1)


def noted_by_cargo(selection, arguments):
    """Returns name and command of each test binary."""
    with tempfile.TemporaryDirectory() as directory:
        # An option, because tests that run Cargo would inherit a variable.
        runner = json.dumps([sys.executable, str(Path(__file__).resolve()), "--note", directory])
        config = f"target.'cfg(all())'.runner={runner}"
        command = [*CARGO, *selection, "--config", config, "--", *arguments]
        started = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if started.returncode != 0:
            sys.exit(started.stderr)
        noted = [json.loads(file.read_text()) for file in Path(directory).iterdir()]
    return [(name_of(one), one) for one in noted]


def run(noted):
    """Returns exit code, output and seconds of a command."""
    started = time.monotonic()
    ended = subprocess.run(
        noted["command"],
        cwd=noted["directory"],
        env=noted["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return ended.returncode, ended.stdout.decode(errors="replace"), time.monotonic() - started


def run_all(tests, jobs):
    """Runs all, and returns the names of those that failed."""
    failed = []
    tests.sort(key=lambda test: (LONGEST.index(test[0]) if test[0] in LONGEST else len(LONGEST), test[0]))
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, noted): name for name, noted in tests}
        for ended in as_completed(running):
            code, output, seconds = ended.result()
            end = "ok"
            if code != 0:
                failed.append(running[ended])
                end = f"FAILED, exit code {code}" if code > 0 else f"FAILED, signal {-code}"
            print(f"-- {running[ended]}: {end}, {seconds:.0f} s\n{output.strip()}\n", flush=True)
    return sorted(failed)


def main():
    if sys.argv[1:2] == ["--note"]:
        return note(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--test")
    parser.add_argument("--without")
    parser.add_argument("--only")
    parser.add_argument("--doc", action="store_true")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    selection = ["--test", options.test] if options.test else ["--tests"]
    # All: with the examples, which tests start.
    build(selection if options.test else [])
    tests = noted_by_cargo(selection, options.arguments)
    tests = [test for test in tests if test[0].split()[1] != options.without]
    if options.doc:
        command = [*CARGO, "--doc", "--", *options.arguments]
        tests.append(("doc tests", {"command": command, "directory": ROOT, "environment": dict(os.environ)}))
    if options.only:
        tests = [test for test in tests if test[0] == options.only]
    if not tests:
        sys.exit("no test binary has this name")
    failed = run_all(tests, options.jobs)
    for name in failed:
        print(f"FAILED: {name} (repeat it: scripts/run-tests.py --only '{name}')", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
