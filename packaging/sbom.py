"""A bill of materials in CycloneDX 1.5: what the packages, the static program and the image contain.

It is made of what the build really took: the programs' shared libraries and the packages of this machine that have them, the
lock files of aegis and blst, and the versions of the headers' packages. https://cyclonedx.org/docs/1.5/json/ has the format.
"""

import hashlib
import json
import os
import re
import subprocess
import time
import tomllib
import urllib.parse
import uuid

import debs
import image


def _installed(package):
    """(name, version, architecture, source, version of the source) of an installed package."""
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}"
    said = subprocess.run(["dpkg-query", "--show", "--showformat", form, package], check=True, text=True, stdout=subprocess.PIPE)
    return said.stdout.split("\t")


def _debian(package):
    name, number, architecture, source, source_version = _installed(package)
    # Advisories are about source packages: without `upstream` a reader cannot tell that there is none of another name.
    upstream = urllib.parse.quote(f"{source}@{source_version}", safe="")
    purl = f"pkg:deb/debian/{urllib.parse.quote(name)}@{urllib.parse.quote(number)}?arch={architecture}&distro=debian-12&upstream={upstream}"
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl,
        "properties": [{"name": "debian:source", "value": f"{source} {source_version}"}],
    }


def _static_libraries(tree):
    """The archives that the static program is linked with: of //third_party:static, and those of the compiler."""
    with open(f"{tree}/third_party/BUILD", encoding="utf-8") as file:
        group = re.search(r'"-Wl,--start-group",(.*)"-Wl,--end-group"', file.read(), flags=re.DOTALL)[1]
    names = [f"lib{name}.a" for name in re.findall(r'"-l(\w+)"', group)] + ["libstdc++.a", "libgcc_eh.a", "libc.a", "libm.a"]
    return [os.path.normpath(subprocess.run(["gcc", f"-print-file-name={name}"], check=True, text=True,
                                            stdout=subprocess.PIPE).stdout.strip()) for name in names]


def _header_packages(tree):
    """Packages of scripts/setup whose headers, and templates in them, are compiled into every program."""
    with open(f"{tree}/scripts/setup", encoding="utf-8") as file:
        packages = re.search(r"^packages=\((.*?)^\)", file.read(), flags=re.DOTALL | re.MULTILINE)[1].split()
    of_tests = {"libgtest-dev", "libgmock-dev", "libbenchmark-dev"}
    return [name for name in packages if name.endswith("-dev") and name not in of_tests]


def _crates(tree):
    """aegis and blst of their lock files. The crates that these name are of their Rust parts, which are not compiled."""
    for name, terms in (("aegis", "MIT"), ("blst", "Apache-2.0")):
        with open(f"{tree}/third_party/{name}/Cargo.lock", "rb") as file:
            crate = next(each for each in tomllib.load(file)["package"] if each["name"] == name)
        purl = f"pkg:cargo/{name}@{crate['version']}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": crate["version"], "purl": purl,
               "hashes": [{"alg": "SHA-256", "content": crate["checksum"]}], "licenses": [{"license": {"id": terms}}]}


def _of_tests(tree):
    """Python packages that the tests alone use: in no package and no image."""
    with open(f"{tree}/scripts/requirements.txt", encoding="utf-8") as file:
        pinned = re.findall(r"^([\w-]+)(?:\[[\w-]+\])?==(\S+)$", file.read(), flags=re.MULTILINE)
    for name, number in pinned:
        purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{number}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl, "scope": "excluded"}


def make(tree, programs, shipped, number, commit, seconds):
    """The bill, as a dictionary. `shipped` has the files that people get, by their names (debs.shipped)."""
    components, dependencies = {}, {}

    def add(component):
        components[component["bom-ref"]] = component
        return component["bom-ref"]

    compiled_in = [add(crate) for crate in _crates(tree)]
    compiled_in += [add(_debian(package)) for package in _header_packages(tree)]
    built = [(name, path) for name, (path, _) in debs.PROGRAMS.items()] + [("libshoal", debs.LIBRARY), ("shoal-static", debs.STATIC)]
    for name, path in built:
        ref = add({
            "type": "library" if name == "libshoal" else "application", "bom-ref": f"program:{name}", "name": name, "version": number,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(shipped[name]).hexdigest()}],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        })
        if name == "shoal-static":
            packages = image.owners(_static_libraries(tree))
        else:
            packages = image.packages_of_libraries([f"{programs}/{path}"])
        dependencies[ref] = compiled_in + [add(_debian(package)) for package in packages]
    own = "pkg:generic/shoal@" + urllib.parse.quote(number)
    dependencies[own] = [f"program:{name}" for name, _ in built]
    for component in _of_tests(tree):
        add(component)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'shoal {number} {commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "component": {
                "type": "application", "bom-ref": own, "name": "shoal", "version": number, "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "git:commit", "value": commit}],
            },
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(dependencies[ref]))} for ref in sorted(dependencies)],
    }


def write(tree, programs, shipped, number, commit, seconds, out):
    with open(f"{out}/shoal-{number}.cdx.json", "w", encoding="utf-8") as file:
        json.dump(make(tree, programs, shipped, number, commit, seconds), file, indent=1, sort_keys=True)
        file.write("\n")
