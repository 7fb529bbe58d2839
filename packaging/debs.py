"""Debian packages: lays out a source package without sources, and has debhelper pack it."""

import glob
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time

import pages
import version

# Where Bazel puts each program, and the section of its man page.
PROGRAMS = {
    "shoal": ("src/shoal/shoal", 1),
    "shoald": ("src/shoald/shoald", 8),
    "shoal-door": ("src/door/shoal-door", 8),
    "shoald-machines": ("src/shoald/machines/shoald-machines", 8),
}
STATIC = "src/shoal/shoal-static"
LIBRARY = "src/libshoal/libshoal.so"


def descriptions(tree, programs):
    """[(what a program says of itself, section of its man page)], also of the launcher of machines."""
    found = []
    for path, section in PROGRAMS.values():
        said = subprocess.run([f"{programs}/{path}", "--describe"], stdout=subprocess.PIPE, check=True, text=True).stdout
        found.append((json.loads(said), section))
    said = subprocess.run([f"{tree}/scripts/party-machines", "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout
    found.append((pages.of_script("party-machines", version.program_version(tree), said), 8))
    return found


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_pages(tree, programs, day, out):
    """Writes man pages and completions below `out`, which are of `day` (YYYY-MM-DD)."""
    all_programs = descriptions(tree, programs)
    see_also = [(program["program"], section) for program, section in all_programs]
    for program, section in all_programs:
        for name, text in pages.man_pages(program, section, day, see_also).items():
            write(f"{out}/man/{name}", text)
        write(f"{out}/completions/bash/{program['program']}", pages.bash_completion(program))
        write(f"{out}/completions/zsh/_{program['program']}", pages.zsh_completion(program))


def packaged_unit(text):
    """A unit of configs for programs in /usr/bin, without the remarks on how to copy it there."""
    text = re.sub(r"\A(#.*\n)+", "", text)
    return text.replace("/usr/local/bin/", "/usr/bin/")


def _changelog(tree, number, commit, seconds):
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    with open(f"{tree}/packaging/debian/control", encoding="utf-8") as file:
        maintainer = re.search(r"^Maintainer: (.*)$", file.read(), flags=re.MULTILINE)[1]
    return (f"shoal ({number}) unstable; urgency=medium\n\n"
            f"  * Commit {commit}.\n"
            f"    /usr/share/doc/shoal/CHANGELOG.md says what changes.\n\n"
            f" -- {maintainer}  {date}\n")


def _lay_out_library(tree, programs, root):
    triplet = subprocess.run(["dpkg-architecture", "--query", "DEB_HOST_MULTIARCH"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.strip()
    os.makedirs(f"{root}/library")
    os.makedirs(f"{root}/python/shoal")
    shutil.copyfile(f"{programs}/{LIBRARY}", f"{root}/library/libshoal.so.1")
    os.symlink("libshoal.so.1", f"{root}/library/libshoal.so")
    for name in ("shoal.h", "example.c"):
        shutil.copyfile(f"{tree}/src/libshoal/{name}", f"{root}/library/{name}")
    with open(f"{tree}/src/libshoal/shoal.pc.in", encoding="utf-8") as file:
        text = file.read()
    for name, value in (("PREFIX", "/usr"), ("LIBDIR", f"/usr/lib/{triplet}"), ("INCLUDEDIR", "/usr/include"),
                        ("VERSION", version.program_version(tree))):
        text = text.replace(f"@{name}@", value)
    write(f"{root}/library/shoal.pc", text)
    for path in glob.glob(f"{tree}/python/shoal/*.py") + [f"{tree}/python/shoal/py.typed"]:
        shutil.copyfile(path, f"{root}/python/shoal/{os.path.basename(path)}")


def lay_out(tree, programs, number, commit, seconds, root):
    """What debhelper packs as version `number`, in the new folder `root`."""
    os.makedirs(f"{root}/programs")
    for path, _ in PROGRAMS.values():
        shutil.copyfile(f"{programs}/{path}", f"{root}/programs/{os.path.basename(path)}")
    shutil.copyfile(f"{tree}/scripts/party-machines", f"{root}/programs/party-machines")
    for file in os.listdir(f"{root}/programs"):
        os.chmod(f"{root}/programs/{file}", 0o755)
    for folder, pattern, to in ((".", "*.md", "pages"), ("docs", "*.md", "pages/docs"), ("configs", "*.textproto", "configs"),
                                ("scripts", "local-chain", "scripts")):
        os.makedirs(f"{root}/{to}")
        for file in glob.glob(f"{tree}/{folder}/{pattern}"):
            shutil.copyfile(file, f"{root}/{to}/{os.path.basename(file)}")
    os.makedirs(f"{root}/units")
    for name in ("shoal-watch.service", "shoal-watch.timer"):  # a user's, who copies and enables them
        shutil.copyfile(f"{tree}/configs/{name}", f"{root}/units/{name}")
    with open(f"{tree}/configs/shoal-door.service", encoding="utf-8") as file:  # of operators who run a door
        write(f"{root}/units/shoal-door.service", packaged_unit(file.read()))
    # Of those who also build shoal-ohttp, which no package has: as it stands there.
    for name in ("shoal-ohttp.service", "shoal-ohttp.sysusers"):
        shutil.copyfile(f"{tree}/configs/{name}", f"{root}/units/{name}")
    os.chmod(f"{root}/scripts/local-chain", 0o755)
    _lay_out_library(tree, programs, root)
    write_pages(tree, programs, time.strftime("%Y-%m-%d", time.gmtime(seconds)), root)

    shutil.copytree(f"{tree}/packaging/debian", f"{root}/debian", copy_function=shutil.copy, symlinks=False)
    os.chmod(f"{root}/debian/rules", 0o755)
    for name, package in (("shoald", "shoald"), ("shoald-machines", "shoal-mpi.shoald-machines")):
        with open(f"{tree}/configs/{name}.service", encoding="utf-8") as file:
            write(f"{root}/debian/{package}.service", packaged_unit(file.read()))
    write(f"{root}/debian/changelog", _changelog(tree, number, commit, seconds))


def pack(tree, programs, number, commit, seconds, work, out):
    """Makes the packages in the folder `out`; returns their paths. `work` is an empty folder of its own."""
    root = f"{work}/shoal"
    lay_out(tree, programs, number, commit, seconds, root)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": work,
        "SOURCE_DATE_EPOCH": str(seconds), "DEB_RULES_REQUIRES_ROOT": "no", "DH_QUIET": "1",
    }
    said = subprocess.run(["debian/rules", "binary"], cwd=root, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, preexec_fn=lambda: os.umask(0o022))
    made = sorted(glob.glob(f"{work}/*.deb"))
    if said.returncode != 0 or not made:
        raise RuntimeError(f"debhelper ends with {said.returncode}: {said.stdout}")
    os.makedirs(out, exist_ok=True)
    return [shutil.copyfile(path, f"{out}/{os.path.basename(path)}") for path in made]


def shipped(packages, static):
    """{name: bytes} of the programs and the library as the packages have them, and of the static program."""
    names = {f"./usr/bin/{name}": name for name in PROGRAMS}
    found = {}
    for path in packages:
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                name = names.get(member.name) or ("libshoal" if re.search(r"/libshoal\.so\.\d+$", member.name) else None)
                if name and member.isreg():
                    found[name] = archive.extractfile(member).read()
    with open(static, "rb") as file:
        found["shoal-static"] = file.read()
    missing = {*PROGRAMS, "libshoal"} - set(found)
    if missing:
        raise RuntimeError(f"no package has {', '.join(sorted(missing))}")
    return found
