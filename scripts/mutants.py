"""Copies the working tree and runs mutants in the copy, for mutants.sh.

mutants.py copy TREE: updates the copy of the working tree, with uncommitted changes. Files that are
equal keep their modification time, so that cargo does not recompile them.

mutants.py run DIRECTORY SAMPLE SEED KILL: draws mutants of DIRECTORY/list.json until SAMPLE of them
compile (those that are the same program do not count), and tests them in DIRECTORY/tree, one after the other. Unit
tests come first; integration tests, which are slow to link, run only for mutants that pass these: first the program
that killed most mutants of the same file, then all others. Doc tests and tests with released Envoys (`e2e`) do not run.
Exit code 1 if less than KILL percent are killed, 2 if the tests fail without a mutant. An interrupt ends the run with a
report.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

# Seconds. A build that takes longer is stuck.
BUILD_TIMEOUT = 900
# Test programs that run at the same time.
PROGRAMS_AT_ONCE = 3
# A test program hangs if it takes this many seconds more than this many times as long as without a mutant.
LEAST_TIMEOUT = 30
TIMEOUT_FACTOR = 4
# Crates whose tests are those of another crate: a derive is tested where it is used.
TESTED_BY = {"plimsoll-schema-derive": "plimsoll-schema"}
# Test targets that need the peers of `make test`.
WITH_PEERS = ["e2e"]


def copy(tree):
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    names = {name for name in names if pathlib.Path(name).is_file()}
    for name in names:
        source, target = pathlib.Path(name), tree / name
        content = source.read_bytes()
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(source.stat().st_mode)
    for left in tree.rglob("*"):
        if left.is_file() and str(left.relative_to(tree)) not in names:
            left.unlink()


def kill_group(process):
    """Kills a process with its children: tests start servers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Group:
    """Processes that run at the same time and are stopped together."""

    def __init__(self):
        self.stopped, self.live = False, set()

    def stop(self):
        self.stopped = True
        for process in list(self.live):
            kill_group(process)


def execute(command, directory, timeout, group=None, **more):
    """Returns exit code and output; the code is None after the timeout."""
    group = group or Group()
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **more,
    )
    group.live.add(process)
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        group.live.discard(process)
        kill_group(process)
        process.wait()


class Crate:
    """Test programs of a crate, and how long they take without a mutant."""

    def __init__(self, tree, name):
        self.tree, self.name = tree, TESTED_BY.get(name, name)
        self.directory = tree / "crates" / self.name
        tests = self.directory / "tests"
        targets = [file.stem for file in tests.glob("*.rs")]
        targets += [file.parent.name for file in tests.glob("*/main.rs")]
        self.integration = sorted(set(targets) - set(WITH_PEERS))
        self.unit = "--lib" if (self.directory / "src/lib.rs").is_file() else "--bins"
        self.seconds = {}

    def build(self, *targets):
        """Returns the test programs of these targets by name, or None if they do not compile."""
        options = ["--package", self.name, "--all-features"]
        if "examples" in targets:
            # Tests start them. `cargo test --examples` would build the tests of the examples.
            execute(["cargo", "build", *options, "--examples"], self.tree, BUILD_TIMEOUT)
        command = ["cargo", "test", *options, "--no-run"]
        command += ["--message-format=json-render-diagnostics", *targets]
        code, output = execute(command, self.tree, BUILD_TIMEOUT)
        if code != 0 and "could not compile" not in output:
            raise RuntimeError(f"cargo failed: {output}")
        if code != 0:
            return None
        programs = {}
        for line in output.splitlines():
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("executable") and message["profile"]["test"]:
                kind = message["target"]["kind"][0]
                if kind == "test":
                    programs[message["target"]["name"]] = message["executable"]
                elif self.unit == "--bins" or kind != "bin":
                    programs["unit"] = message["executable"]
        return programs

    def test(self, name, program, *filters, group=None):
        timeout = LEAST_TIMEOUT + TIMEOUT_FACTOR * self.seconds.get(name, LEAST_TIMEOUT)
        # Variables that `cargo test` sets and tests read.
        cargo = {"CARGO_MANIFEST_DIR": str(self.directory), "CARGO_PKG_NAME": self.name}
        environment = os.environ | cargo
        command = [program, *filters, *(["--exact"] if filters else [])]
        return execute(command, self.directory, timeout, group, env=environment)

    def baseline(self):
        """Runs all tests without a mutant; exits if one fails."""
        targets = [part for name in self.integration for part in ("--test", name)]
        programs = self.build(self.unit, *targets)
        if programs is None:
            print(f"mutants: {self.name} does not compile")
            sys.exit(2)
        for name, program in programs.items():
            start = time.monotonic()
            code, output = self.test(name, program)
            if code != 0:
                print(f"{output}\nmutants: {self.name} {name} fails without a mutant")
                sys.exit(2)
            self.seconds[name] = time.monotonic() - start

    def kills(self, name, program, group):
        """Returns "killed" or "timeout", or None if the tests of a program pass. A failure must repeat
        itself: a test that fails now and then does not count. A test that has waited for long is believed:
        tests that are slow by chance do not wait so long."""
        start = time.monotonic()
        code, output = self.test(name, program, group=group)
        if code == 0 or group.stopped:
            return None
        if code is None:
            return "timeout"
        if time.monotonic() - start > LEAST_TIMEOUT / 2 + self.seconds[name]:
            return "killed"
        failed = re.findall(r"^    (\S+)$", output.split("\nfailures:\n")[-1], re.MULTILINE)
        code, _ = self.test(name, program, *failed, group=group)
        return None if code == 0 else "killed"

    def first_kill(self, programs):
        """Runs test programs, several at a time as they mostly wait, until one of them kills the mutant.
        Returns how, and the name of the program."""
        group, ended = Group(), (None, "")
        with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
            names = {pool.submit(self.kills, *item, group): item[0] for item in programs.items()}
            for done in concurrent.futures.as_completed(names):
                if done.result():
                    ended = done.result(), names[done]
                    break
            # Futures that are canceled here would never complete above.
            pool.shutdown(wait=False, cancel_futures=True)
            group.stop()
        return ended


def mutate(tree, mutant):
    """Writes the mutant and returns the original text."""
    file = tree / mutant["file"]
    original = file.read_text()
    lines = original.splitlines(keepends=True)
    span = mutant["span"]
    (start, first), (end, last) = (
        (span[at]["line"] - 1, span[at]["column"] - 1) for at in ("start", "end")
    )
    before = "".join(lines[:start]) + lines[start][:first]
    after = lines[end][last:] + "".join(lines[end + 1 :])
    file.write_text(f"{before}{mutant['replacement']} /* mutant */{after}")
    return original


def original_text(tree, mutant):
    lines = (tree / mutant["file"]).read_text().splitlines(keepends=True)
    start, end = mutant["span"]["start"], mutant["span"]["end"]
    text = "".join(lines[start["line"] - 1 : end["line"]])
    behind = len(lines[end["line"] - 1]) - (end["column"] - 1)
    return text[start["column"] - 1 : len(text) - behind]


def is_equivalent(tree, mutant):
    """Whether a mutant is the same program: `Type::default()` that became `Default::default()`."""
    if mutant["replacement"] != "Default::default()":
        return False
    return re.fullmatch(r"\s*[\w:<>]+::default\(\)\s*", original_text(tree, mutant)) is not None


class Run:
    def __init__(self, directory):
        self.tree = directory / "tree"
        self.crates = {}
        # Mutants killed per test program, by file of the mutant. Only chooses the order.
        self.kills = collections.defaultdict(collections.Counter)

    def crate(self, name):
        if name not in self.crates:
            print(f"== {name}: tests without a mutant", flush=True)
            self.crates[name] = Crate(self.tree, name)
            self.crates[name].baseline()
        return self.crates[name]

    def order(self, crate, file):
        total = sum((counts for counts in self.kills.values()), collections.Counter())
        mine = self.kills[file]
        key = lambda name: (-mine[name], -total[name], crate.seconds[name])
        return sorted(crate.integration, key=key)

    def outcome(self, mutant):
        """Returns "unviable", "killed", "timeout" or "survived", and the test program that decided."""
        crate = self.crate(mutant["package"])
        original = mutate(self.tree, mutant)
        try:
            programs = crate.build(crate.unit)
            if programs is None:
                return "unviable", ""
            ended, name = crate.first_kill(programs)
            if ended:
                return ended, name
            order = self.order(crate, mutant["file"])
            for names in filter(None, [order[:1], order[1:]]):
                programs = crate.build(*(part for name in names for part in ("--test", name)))
                if programs is None:
                    # A constant of the tests that the mutant makes panic.
                    return "killed", "build"
                ended, name = crate.first_kill(programs)
                if ended:
                    self.kills[mutant["file"]][name] += 1
                    return ended, name
            return "survived", ""
        finally:
            (self.tree / mutant["file"]).write_text(original)


def report(results, kill):
    counts = collections.Counter(result for _, result in results)
    viable = len(results) - counts["unviable"]
    caught = counts["killed"] + counts["timeout"]
    share = 100 * caught / viable if viable else 0
    print(
        f"== {viable} viable mutants: {counts['killed']} killed, {counts['survived']} survived,"
        f" {counts['timeout']} timed out; {counts['unviable']} more do not compile"
    )
    for mutant, result in results:
        if result == "survived":
            print(f"survived: {mutant['name']}")
    enough = viable > 0 and share >= kill
    verdict = "OK" if enough else "FAILED"
    print(f"make mutants: {verdict}, {share:.1f} % of {viable} killed or timed out, {kill:g} % wanted")
    return 0 if enough else 1


def run(directory, sample, seed, kill):
    mutants = json.loads((directory / "list.json").read_text())
    print(f"== {len(mutants)} mutants, sample of {sample}, seed {seed}", flush=True)
    mutants.sort(key=lambda mutant: mutant["name"])
    random.Random(seed).shuffle(mutants)
    running, results = Run(directory), []
    try:
        for mutant in mutants:
            if sum(result != "unviable" for _, result in results) == sample:
                break
            if is_equivalent(running.tree, mutant):
                continue
            running.crate(mutant["package"])
            start = time.monotonic()
            result, program = running.outcome(mutant)
            results.append((mutant, result))
            by = f" ({program})" if program else ""
            print(f"{time.monotonic() - start:5.0f} s  {result}{by}: {mutant['name']}", flush=True)
    except KeyboardInterrupt:
        print("== interrupted; what was tested until now:")
    return report(results, kill)


if sys.argv[1] == "copy":
    copy(pathlib.Path(sys.argv[2]))
else:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
