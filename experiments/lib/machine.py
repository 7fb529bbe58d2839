"""The machine that a study runs on: what it is, and how busy others keep it."""

import hashlib
import os
import platform
import shutil
import subprocess
import threading
import time

# What a result says of its machine, as columns of the CSV.
FIELDS = ("cpu", "cores", "memory_gib", "kernel", "commit")


def _cpuinfo():
    """The fields of the first processor in /proc/cpuinfo."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, colon, value = line.partition(":")
            if not colon:
                break
            fields[name.strip()] = value.strip()
    return fields


def describe_cpu(fields):
    """Name, family and model, and the widest instruction set that Shoal's kernels use."""
    flags = fields.get("flags", "").split()
    if "avx512ifma" in flags:
        wide = "AVX-512 IFMA"
    elif "avx2" in flags:
        wide = "AVX2"
    else:
        wide = "no AVX2"
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}, {wide})"


def memory_bytes(field="MemTotal"):
    """MemTotal or MemAvailable."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    raise KeyError(field)


def commit(root):
    """The commit of the working tree; with "+" and a digest of what was changed or added since, if anything was.

    Programs that come from elsewhere (SHOAL_BIN) may be of any other: "+SHOAL_BIN".
    """

    def git(*words):
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    if not head:
        return "unknown"
    changes = git("diff", "HEAD", "--binary") or ""
    # Where programs come from: results of a study may well lie elsewhere in the tree.
    added = git("ls-files", "--others", "--exclude-standard", "-z", "src", "experiments", "scripts", "third_party")
    for path in sorted((added or "").split("\0")):
        if path:
            changes += f"\n{path}"
        if os.path.isfile(os.path.join(root, path)):
            with open(os.path.join(root, path), "rb") as file:
                changes += f" {hashlib.sha256(file.read()).hexdigest()}"
    return (head + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")
            + ("+SHOAL_BIN" if os.environ.get("SHOAL_BIN") else ""))


def facts(root):
    """A dictionary with FIELDS, all text."""
    return {
        "cpu": describe_cpu(_cpuinfo()),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_gib": f"{memory_bytes() / 2**30:.0f}",
        "kernel": platform.release(),
        "commit": commit(root),
    }


def process_cpu_seconds(pid):
    """Processor time of a process that runs; 0 of one that does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid):
    """The largest resident set that a running process has had."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status: no VmHWM")


class OtherLoad:
    """Cores that anything but the study's own processes kept busy, since this was made."""

    def __init__(self, own_cpu_seconds):
        """`own_cpu_seconds`: a function, the processor time of the study's own processes so far."""
        self._own = own_cpu_seconds
        self._start = time.monotonic(), self._busy(), own_cpu_seconds()

    @staticmethod
    def _busy():
        with open("/proc/stat", encoding="utf-8") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
        # user, nice, system, irq, softirq and steal: what another guest takes counts, too.
        return sum(ticks[i] for i in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")

    def cores(self):
        wall, busy, own = self._start
        seconds = time.monotonic() - wall
        if seconds <= 0:
            return 0.0
        return max(0.0, (self._busy() - busy - (self._own() - own)) / seconds)


class _Watcher:
    """Looks at something again and again, on a thread of its own, within a `with`; also when that ends."""

    _TICK_S = 0.1

    def __init__(self):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self):
        raise NotImplementedError

    def _watch(self):
        ended = False
        while not ended:
            ended = self._end.wait(self._TICK_S)
            self._look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


class Use(_Watcher):
    """The most memory and disk that was taken while this watched. To be used with `with`.

    Of the whole machine, so that files without a name and pages of all processes count; what is only
    cached does not. Other programs count, too.
    """

    _TICK_S = 0.25

    def __init__(self, directory):
        """`directory`: on the file system that is watched."""
        super().__init__()
        self._directory = directory
        self._start = self._free()
        self.memory_bytes = self.disk_bytes = 0

    def _free(self):
        return memory_bytes("MemAvailable"), shutil.disk_usage(self._directory).free

    def _look(self):
        memory, disk = self._free()
        self.memory_bytes = max(self.memory_bytes, self._start[0] - memory)
        self.disk_bytes = max(self.disk_bytes, self._start[1] - disk)


class Pauses(_Watcher):
    """Notices when this process, and with it all that was started beside it, stood still for a while.

    A laptop that sleeps, or someone who stops a job to have the machine alone: times that were taken
    meanwhile mean nothing. A pause that ends with the work counts too. To be used with `with`.
    """

    def __init__(self):
        super().__init__()
        self.longest_s = 0.0

    def __enter__(self):
        self._before = time.time()
        return super().__enter__()

    def _look(self):
        # Real time goes on while a machine sleeps.
        now = time.time()
        self.longest_s = max(self.longest_s, now - self._before - self._TICK_S)
        self._before = now
