"""What scripts/aws has done for one experiment, in a local file. Each step stands there before it is taken."""

import fcntl
import json
import os
import re
import time

from cloud.experiment import Wrong


def root(directory=None):
    """The folder with a folder for each experiment."""
    return directory or os.path.join(
        os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "shoal-aws")


def names(directory=None):
    """The experiments that have a journal."""
    top = root(directory)
    there = os.listdir(top) if os.path.isdir(top) else []
    return sorted(name for name in there if os.path.exists(os.path.join(top, name, "journal.json")))


def peek(name, directory=None):
    """The content of an experiment's journal, whoever is at work on it. Raises Wrong if it is none."""
    path = os.path.join(root(directory), name, "journal.json")
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError:
            content = None
    if not isinstance(content, dict):
        raise Wrong(f"{path} is damaged: scripts/aws list --region REGION has the id; then remove that file, and "
                    f"scripts/aws down {name} --id ID --region REGION")
    return content


class Journal:
    """One experiment's journal; nobody else uses it until this is closed. Its folder has the ssh keys, too.

    "experiment": the file's text; "id": its tag; "account": whose it is; "commit": of what is built there;
    "steps": name -> {"region", "kind", "begun_s", "result"}; without "result" nobody knows whether it took place;
    "found": whether `down` ever found something.
    """

    def __init__(self, name, directory=None, make=None):
        """`make`: the content of a new one, as a function. Raises Wrong if there is none, or if it is in use."""
        if not re.fullmatch(r"[a-z0-9-]{1,24}", name):
            raise Wrong(f"{name!r} is no experiment's name")
        self.folder = os.path.join(root(directory), name)
        self._path = os.path.join(self.folder, "journal.json")
        if not make and not os.path.exists(self._path):
            raise Wrong(f"no experiment {name!r} in {root(directory)}; scripts/aws list says which there are")
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = open(os.path.join(self.folder, "lock"), "a", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Wrong(f"another scripts/aws is at work on {name!r}") from None
        if os.path.exists(self._path):
            self.content = peek(name, directory)
        else:
            self.begin_anew(make)

    def begin_anew(self, make):
        self.content = {"steps": {}, **make()}
        self.save()

    def close(self):
        self._lock.close()

    def save(self):
        """On the disk when this returns: the file is the old one or the new one, never half of it."""
        part = self._path + ".part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(self.content, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self._path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def set(self, **fields):
        self.content.update(fields)
        self.save()

    def step(self, name):
        """The step, or None."""
        return self.content["steps"].get(name)

    def begin(self, name, region, kind):
        self.content["steps"][name] = {"region": region, "kind": kind, "begun_s": time.time()}
        self.save()

    def end(self, name, result):
        self.content["steps"][name]["result"] = result
        self.save()

    def forget(self, name):
        """The step was refused: it made nothing."""
        del self.content["steps"][name]
        self.save()

    def results(self, region, kind):
        """Identifiers of what was made of this kind in the region."""
        found = []
        for step in self.content["steps"].values():
            if step["region"] == region and step["kind"] == kind:
                found += step.get("result", [])
        return found

    def made(self):
        """What was made, whatever became of it, machines first."""
        steps = sorted(self.content["steps"].items(), key=lambda item: item[1]["kind"] != "instance")
        return [f"{step['region']}: {step['kind']} {one}" for name, step in steps if step["kind"]
                for one in step.get("result", [f"of {name}, perhaps"])]

    def begun_last_s(self):
        """When the latest step of unknown outcome began, or 0."""
        return max((step["begun_s"] for step in self.content["steps"].values() if "result" not in step), default=0)
