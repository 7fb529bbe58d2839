"""What other people's programs read in the inputs of generate.py, and how they order versions.

Each reader returns a `Truth`, or raises `Refused` where the other program does.
"""

import base64
import contextlib
import dataclasses
import email
import functools
import io
import json
import logging
import os
import re
import subprocess
import tempfile
import tomllib

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as PypiVersion


class Refused(Exception):
    pass


class Missing(Exception):
    """The other program is not installed here."""


@dataclasses.dataclass(frozen=True)
class Entry:
    ecosystem: str
    name: str
    version: str | None  # None: the file does not say one
    # Whether the file leaves open which package is meant, so that "unclear" is right as well. It may be one of these, too:
    # (name, version).
    open: bool = False
    others: tuple = ()
    # Whether one of the others that is vulnerable must leave it unclear.
    any_of: bool = False


@dataclasses.dataclass
class Truth:
    entries: list = dataclasses.field(default_factory=list)
    unknown: list = dataclasses.field(default_factory=list)  # named, and cannot be looked up


def key(ecosystem, name):
    """Names that an ecosystem takes for the same give the same key."""
    if ecosystem == "PyPI":
        return ecosystem, canonicalize_name(name)
    if ecosystem == "crates.io":
        return ecosystem, name.lower().replace("_", "-")
    if ecosystem == "Go" and name == "std":
        name = "stdlib"
    # Package URLs are in lower case, whatever the module's and the package's name is.
    return ecosystem, name.lower() if ecosystem in ("Go", "npm", "GitHub Actions") else name


# Package URLs.

ECOSYSTEMS = {"pypi": "PyPI", "npm": "npm", "cargo": "crates.io", "golang": "Go", "githubactions": "GitHub Actions"}


def of_source(text):
    """The source's version for a binary package's: a rebuild alone adds +b and a number."""
    return re.sub(r"\+b\d+$", "", text) if text else text


def names_modules(tools, found_by):
    """Whether what wrote a bill writes modules of Go alone, and no packages in them. `found_by`: where syft found this one."""
    return tools == {"cdxgen"} or (tools == {"syft"} and re.match(r"go-|acquired package info from go module", found_by or "") is not None)


def modules_around(path, text):
    """The modules that may have the package `path` of Go in them: what stands before a slash in it, where the import path's
    major version and what hosts have before their modules allow it."""
    host, *parts = path.split("/")
    if "." not in host:
        return []
    major = (text or "").removeprefix("v").partition(".")[0]
    first = {"github.com": 3, "gitlab.com": 3, "bitbucket.org": 3}.get(host.lower(), 1)
    if path.lower().startswith("golang.org/x/"):
        first = 3
    places = [host, *parts]

    def named(count):
        found = re.fullmatch(r"(?:.*\.)?v([0-9]+)" if host == "gopkg.in" else r"v([0-9]+)", places[count - 1])
        return found and found[1]

    # Where the path has the version's major version, the module ends there or later.
    ends = [count for count in range(first, len(places) + 1) if named(count) == major]
    return ["/".join(places[:count]) for count in range(max([first, *ends]), len(places)) if named(count) in (None, major)]


def contradicts(group, name, text, url):
    """Whether what stands beside a package URL is surely not of the package that it names."""
    if url.type not in ECOSYSTEMS and url.type != "deb" or (url.type == "golang" and url.name in ("std", "stdlib", "toolchain")):
        return False
    ends = [re.sub("[^a-z0-9]", "", (one or "").lower().rpartition("/")[2].partition(":")[0]) for one in (name, url.name, url.subpath)]
    if ends[0] and ends[0] not in ends[1:] and not url.subpath:
        return True
    if group and url.type == "npm" and url.namespace and not url.subpath and "/" not in name and group.lower().strip("@") != url.namespace.lower().strip("@"):
        return True
    if not text or not url.version or url.qualifiers.get("epoch"):
        return False
    if url.type == "pypi":
        try:
            return PypiVersion(text) != PypiVersion(url.version)
        except InvalidVersion:
            return False
    plain = [one.removeprefix("v").partition("+")[0] for one in (text, url.version)]
    return url.type != "deb" and plain[0] != plain[1]


def of_purl(url, truth, modules=True):
    """Adds what a packageurl.PackageURL names. `modules`: those of Go are modules."""
    space = url.namespace or ""
    name = f"{space}/{url.name}" if space and url.type != "pypi" and url.type != "cargo" else url.name
    if url.type == "golang" and name in ("std", "stdlib", "toolchain"):
        # Advisories write a release candidate of Go itself so.
        truth.entries.append(Entry("Go", name, url.version and re.sub(r"-(rc|beta)([0-9]+)$", r"-\1.\2", url.version)))
        return
    if url.type == "golang" and not url.subpath and not modules and url.qualifiers.get("type") != "module":
        others = tuple((one, url.version) for one in modules_around(name, url.version))
        if others:
            truth.entries.append(Entry("Go", name, url.version, others=others, any_of=True))
            return
    if url.type == "golang" and url.subpath:
        # Some tools write the end of a module's path so, and others a package's place in the module.
        truth.entries.append(Entry("Go", f"{name}/{url.subpath}", url.version, open=True, others=((name, url.version),)))
        return
    if url.type in ECOSYSTEMS:
        truth.entries.append(Entry(ECOSYSTEMS[url.type], name, url.version))
        return
    distro = url.qualifiers.get("distro", "")
    family, _, release = distro.partition("-")
    ecosystem = {("debian", "12"): "Debian:12", ("ubuntu", "22.04"): "Ubuntu:22.04:LTS"}.get(
        (family, release.split(".")[0] if family == "debian" else release))
    if url.type != "deb" or not ecosystem or space.lower() not in ("", family):
        truth.unknown.append(url.to_string())
        return
    epoch = url.qualifiers.get("epoch")
    text = f"{epoch}:{url.version}" if epoch and url.version and ":" not in url.version else url.version
    source, _, source_text = url.qualifiers.get("upstream", "").partition("@")
    # Without `upstream` it may be a binary package of any source.
    truth.entries.append(Entry(ecosystem, source or url.name, source_text or of_source(text), open=not source))


def maybe_bare(url, group, name, text, truth):
    """A name of npm without the scope that its package URL has may be another package's."""
    if url.type == "npm" and url.namespace and not group and name == url.name and truth.entries:
        last = truth.entries[-1]
        truth.entries[-1] = dataclasses.replace(last, others=(*last.others, (name, text or url.version)), any_of=True)


def of_cpe(text):
    """The version in a CPE; nothing for any."""
    parts = [re.sub(r"\\(.)", r"\1", part) for part in re.findall(r"(?:\\.|[^:\\])+", text)]
    return parts[5] if len(parts) > 5 and parts[5] not in ("*", "-") else None


def other_cpe(text, versions):
    """Whether a CPE is surely of another version. A package's may have an epoch in front, and more behind."""
    said = of_cpe(text)
    plain = [re.sub(r"^(\d+[:!])?v?", "", one.lower()) for one in (said or "", *filter(None, versions))]
    return bool(said) and len(plain) > 1 and not any(re.match(re.escape(plain[0]) + r"(?!\d|\.\d)", one) for one in plain[1:])


@functools.lru_cache(maxsize=100000)
def parsed_purl(text):
    from packageurl import PackageURL

    try:
        return PackageURL.from_string(text)
    except ValueError as error:
        raise Refused(str(error)) from error


def read_purl(case):
    truth = Truth()
    bill = json.loads(case.content)
    # An input that is made smaller may lack its tool, or where that found a package.
    tools = {tool["name"] for tool in bill["metadata"].get("tools", [])}
    for component in bill["components"]:
        found_by = "".join(item["value"] for item in component.get("properties", []))
        url = parsed_purl(component["purl"])
        of_purl(url, truth, names_modules(tools, found_by))
        maybe_bare(url, "", component["name"], url.version, truth)
    return truth


# Bills of materials.

# What is no package unless it has a version. An operating system is one by its name, and no component of these inputs has such a name.
NO_PACKAGES = ("file", "data")


def utf8(content):
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(str(error)) from error


def read_cyclonedx(case):
    from cyclonedx.model.bom import Bom

    try:
        bom = Bom.from_json(data=json.loads(utf8(case.content)))
    except Exception as error:  # whatever the library raises
        raise Refused(f"{type(error).__name__}: {error}") from error
    truth = Truth()

    tools = [tool.name for tool in (*bom.metadata.tools.tools, *bom.metadata.tools.components)]
    tools = {(name or "").lower() for name in tools}
    refs = set()

    def visit(component, main=False):
        refs.add(component.bom_ref.value)
        if component.pedigree and component.pedigree.ancestors:
            truth.unknown.append(f"the ancestors of {component.name}")
        if component.purl is not None:
            refs.add(component.purl.to_string())
            before = len(truth.unknown)
            found_by = "".join(item.value or "" for item in component.properties if item.name == "syft:package:foundBy")
            of_purl(component.purl, truth, names_modules(tools, found_by))
            if not main:
                maybe_bare(component.purl, component.group, component.name, component.version, truth)
            # What is unknown is said once.
            known = len(truth.unknown) == before
            if known and component.cpe and other_cpe(component.cpe, (component.version, component.purl.version)):
                truth.unknown.append(component.cpe)
            if known and contradicts(component.group, component.name or "", component.version, component.purl):
                truth.unknown.append(f"{component.name} {component.version}: {component.purl}")
        elif not main and (component.type.value not in NO_PACKAGES or (component.version or component.group)):
            truth.unknown.append(component.name)
        for inner in component.components or []:
            visit(inner)

    for component in bom.components or []:
        visit(component)
    if bom.metadata.component is not None:
        visit(bom.metadata.component, main=True)
    named = {one.ref.value for entry in bom.dependencies for one in (entry, *entry.dependencies)}
    truth.unknown += sorted(named - refs)
    return truth


def of_spdx(document):
    from spdx_tools.spdx.model import RelationshipType

    described = {relation.related_spdx_element_id for relation in document.relationships
                 if relation.relationship_type == RelationshipType.DESCRIBES}
    described |= {relation.spdx_element_id for relation in document.relationships
                  if relation.relationship_type == RelationshipType.DESCRIBED_BY}
    truth = Truth()
    tools = [creator.name for creator in document.creation_info.creators if creator.actor_type.name == "TOOL"]
    tools = {name.partition("-")[0].lower() for name in tools}
    elements = {"SPDXRef-DOCUMENT", "NONE", "NOASSERTION"} | {one.spdx_id for one in (*document.packages, *document.files, *document.snippets)}
    named = {str(one) for relation in document.relationships for one in (relation.spdx_element_id, relation.related_spdx_element_id)}
    truth.unknown += sorted(named - elements)
    for package in document.packages:
        # What syft takes from another bill stands here as it stands there.
        modules = names_modules(tools, package.source_info) and not re.search(r"\.(spdx|cdx)\b", package.source_info or "")
        begins = {"purl": "", "npm": "pkg:npm/", "maven-central": "pkg:maven/"}
        references = [(reference.reference_type.strip().rpartition("/")[2].lower(), reference.locator.strip())
                      for reference in package.external_references]
        urls = [begins[kind] + locator for kind, locator in references if kind in begins]
        version = package.version if isinstance(package.version, str) else ""
        surely = []
        for text in urls:
            try:
                before = len(truth.unknown)
                url = parsed_purl(text)
                of_purl(url, truth, modules)
                if len(urls) == 1 and package.spdx_id not in described:
                    maybe_bare(url, "", package.name, version, truth)
                # What is unknown is said once.
                surely.append(len(truth.unknown) == before and contradicts("", package.name, version, url))
            except Refused:
                surely.append(False)
                truth.unknown.append(text)
        if surely and all(surely):
            truth.unknown.append(f"{package.name} {package.version}: {urls}")
        versions = [version]
        with contextlib.suppress(Refused):
            known = [url for url in map(parsed_purl, urls) if url.type in ECOSYSTEMS or url.type == "deb"]
            versions += [url.version for url in known]
            truth.unknown += [reference.locator for reference in package.external_references
                              if known and "cpe" in reference.reference_type and other_cpe(reference.locator, versions)]
        if not urls and package.spdx_id not in described:
            truth.unknown.append(package.name)
    return truth


def read_spdx_json(case):
    from spdx_tools.spdx.parser.json.json_parser import JsonLikeDictParser

    try:
        return of_spdx(JsonLikeDictParser().parse(json.loads(utf8(case.content))))
    except Refused:
        raise
    except Exception as error:  # whatever the library raises
        raise Refused(f"{type(error).__name__}: {getattr(error, 'messages', error)}") from error


def read_spdx_tag_value(case):
    from spdx_tools.spdx.parser.tagvalue.parser import Parser

    # As its parse_from_file opens it: with universal line ends.
    text = utf8(case.content).replace("\r\n", "\n").replace("\r", "\n")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parser = Parser()
        return of_spdx(parser.parse(text))
    except Refused:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {getattr(error, 'messages', error)}"
        if found := re.search(r"Unknown tag provided in line (\d+)", message):
            message = f"not understood: {text.splitlines()[int(found[1]) - 1]}"
        raise Refused(message) from error


# Python.


def read_requirements(case):
    """pip's own reader, line by line: it follows no other file."""
    from pip._internal.exceptions import PipError
    from pip._internal.req import req_file
    from pip._internal.req.constructors import parse_req_from_line
    from pip._vendor.packaging.markers import InvalidMarker

    logging.disable(logging.CRITICAL)
    truth = Truth()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, case.name)
        with open(path, "wb") as file:
            file.write(case.content)
        os.environ.pop("VERSION", None)
        os.environ.pop("X", None)
        try:
            parser = req_file.RequirementsFileParser(None, req_file.get_line_parser(None))
            with contextlib.redirect_stderr(io.StringIO()):
                lines = list(parser._parse_file(path, False))
            for line in lines:
                # Older ones have the attribute only where there is one.
                text = getattr(line, "requirement", None)
                if text is None:
                    if line.opts.requirements or line.opts.constraints:
                        truth.unknown.append(str(line.opts))
                    continue
                if line.is_editable:
                    if not re.match(r"\.(/|\[|$)", text):
                        truth.unknown.append(text)
                    continue
                parts = parse_req_from_line(text, None)
                if parts.requirement is None or parts.link is not None:
                    if not re.match(r"\.(\[|$)", text):
                        truth.unknown.append(text)
                    continue
                requirement = parts.requirement
                if requirement.url:
                    truth.unknown.append(text)
                    continue
                pins = {specifier.version for specifier in requirement.specifier
                        if specifier.operator in ("==", "===") and not specifier.version.endswith("*")}
                texts = {pin.lower() for pin in pins}
                # Of two pins at most one holds: no version is installed.
                truth.entries.append(Entry("PyPI", requirement.name, pins.pop() if len(texts) == 1 else None))
        except (PipError, InvalidMarker, LookupError, ValueError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
    return truth


def read_pip_audit(case):
    """What pip-audit audits of a list in which all is pinned: package -> versions. Nothing if it refuses the list."""
    try:
        from pip_audit._dependency_source.interface import DependencySourceError
        from pip_audit._dependency_source.requirement import RequirementSource
        from pip_audit._service.interface import ResolvedDependency
    except ImportError as error:
        raise Missing("pip-audit") from error
    import pathlib

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, case.name)
        path.write_bytes(case.content)
        try:
            found = list(RequirementSource([path], disable_pip=True, no_deps=True).collect())
        except (DependencySourceError, ValueError, OSError, AttributeError) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
    return {(canonicalize_name(one.name), str(one.version)) for one in found if isinstance(one, ResolvedDependency)}


def read_metadata(case):
    """As importlib.metadata reads an installed package: the message that email finds."""
    # It decodes with the error handler that keeps odd bytes.
    message = email.message_from_string(case.content.decode("utf-8", errors="surrogateescape").replace("\r\n", "\n"))
    name, text = (" ".join(str(message[field] or "").split()) for field in ("Name", "Version"))
    if not name or not text:
        raise Refused("no name or no version")
    return Truth([Entry("PyPI", name, text)])


def toml(content):
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


def read_poetry_lock(case):
    """Poetry's own reader where it is installed, and the TOML reader under it otherwise."""
    try:
        from poetry.packages.locker import Locker
    except ImportError:
        lock = toml(case.content)
        if "metadata" not in lock:
            raise Refused("no metadata, which Poetry writes last")
        return of_locked(lock, "PyPI", lambda package: (package.get("source") or {}).get("type") == "directory")
    import pathlib

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "poetry.lock")
        path.write_bytes(case.content)
        try:
            locked = [(package.pretty_name, package.version.text, package.source_type)
                      for package in Locker(path, {}).locked_repository().packages]
            listed = Locker(path, {}).lock_data["package"]
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
    # Of two entries of one name and version its repository keeps what it keeps.
    truth = Truth([Entry("PyPI", name, text, open=kind not in (None, "legacy")) for name, text, kind in locked if kind != "directory"])
    if len(listed) < len(locked):
        raise Refused("more packages than the file has")
    return truth


def of_locked(lock, ecosystem, is_own):
    packages = lock.get("package", [])
    if not isinstance(packages, list) or not all(isinstance(package, dict) for package in packages):
        raise Refused("`package` is no list of tables")
    truth = Truth()
    for package in packages:
        name, text = package.get("name"), package.get("version")
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(package.get("source", {}), (str, dict)):
            raise Refused("no name or no version")
        if not is_own(package):
            truth.entries.append(Entry(ecosystem, name, text, open=comes_from_elsewhere(package.get("source"))))
    return truth


def comes_from_elsewhere(source):
    """Whether a package is not from a registry, which is asked for it by name and version."""
    if isinstance(source, dict):
        return source.get("type") not in (None, "", "legacy")
    return bool(source) and not source.startswith(("registry+", "sparse+"))


def read_cargo_lock(case):
    """Cargo's rule on what a TOML reader reads: a package without a source lies in the project."""
    return of_locked(toml(case.content), "crates.io", lambda package: not package.get("source"))


# npm, Go, Debian.


class NpmPeer:
    def __init__(self, modules):
        if not modules:
            raise Missing("npm")
        folder = os.path.dirname(os.path.abspath(__file__))
        self.process = subprocess.Popen(["node", os.path.join(folder, "npm_peer.cjs"), modules], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def read_package_lock(case, npm):
    answer = npm.ask({"name": case.name, "lock": base64.b64encode(case.content).decode()})
    if "refused" in answer:
        raise Refused(answer["refused"])
    truth = Truth()
    for package in answer["packages"]:
        if not package["own"]:
            # npm copies what a package at an address says of itself.
            resolved = package["resolved"] if isinstance(package["resolved"], str) else ""
            name, text = package["name"], package["version"]
            # Where a file does not say which version of the format it has, npm leaves an alias as it is.
            if text and text.startswith("npm:"):
                name, _, text = text.removeprefix("npm:").rpartition("@")
            truth.entries.append(Entry("npm", name, text, open=bool(resolved) and "/-/" not in resolved))
    return truth


def read_go_sum(case):
    """As cmd/go reads the file (modfetch.readGoSum)."""
    truth = Truth()
    for line in case.content.split(b"\n"):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 3:
            raise Refused("malformed go.sum: wrong number of fields")
        name, text, _ = (field.decode("utf-8", errors="replace") for field in fields)
        if not text.endswith("/go.mod"):
            truth.entries.append(Entry("Go", name, text))
    return truth


SIGNED = re.compile(r"(.+)-signed-(amd64|arm64|i386)")


def read_dpkg_status(case):
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "info"))
        with open(os.path.join(folder, "status"), "wb") as file:
            file.write(case.content)
        done = subprocess.run(["dpkg-query", f"--admindir={folder}", "--show",
                               "--showformat=${db:Status-Status}\\t${source:Package}\\t${source:Version}\\t${Version}\\t${Source}\\n"],
                              capture_output=True, check=False, env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]})
    if done.returncode != 0:
        raise Refused(done.stderr.decode(errors="replace").strip().replace(folder, ""))
    truth = Truth()
    for line in done.stdout.decode(errors="replace").splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            raise Refused("a field of several lines")
        status, source, text, own, field = fields
        if status in ("not-installed", "config-files", "half-installed"):
            continue
        signed = SIGNED.fullmatch(source)
        if signed:
            # A signed kernel has the version of the source that was signed, and is of one with a plus in its version.
            truth.entries.append(Entry(case.distribution, signed[1], of_source(own), open=True, others=((source, text), (signed[1], text))))
        else:
            truth.entries.append(Entry(case.distribution, source, text if "(" in field else of_source(text), others=((source, text),)))
    return truth


READERS = {"purl": read_purl, "osv": read_purl, "cyclonedx": read_cyclonedx, "spdx-json": read_spdx_json,
           "spdx-tag-value": read_spdx_tag_value, "requirements": read_requirements, "metadata": read_metadata,
           "poetry-lock": read_poetry_lock, "cargo-lock": read_cargo_lock, "package-lock": read_package_lock,
           "go-sum": read_go_sum, "dpkg-status": read_dpkg_status}


# Orders.


def signed(a, b):
    return "<" if a < b else ">" if b < a else "="


def by_packaging(a, b):
    try:
        return signed(PypiVersion(a), PypiVersion(b))
    except InvalidVersion:
        return "none"


def univers_class(order):
    try:
        from univers import versions
    except ImportError as error:
        raise Missing("univers") from error
    return {"order-pypi": versions.PypiVersion, "order-npm": versions.SemverVersion, "order-cargo": versions.SemverVersion,
            "order-go": versions.GolangVersion, "order-debian": versions.DebianVersion}[order]


def by_univers(order, a, b):
    kind = univers_class(order)
    from univers.versions import InvalidVersion as Invalid

    try:
        return signed(kind(a), kind(b))
    except (Invalid, ValueError):
        return "none"


def by_dpkg(a, b):
    for text in (a, b):
        if subprocess.run(["dpkg", "--validate-version", text], capture_output=True, check=False).returncode:
            return "none"
    for sign, word in (("<", "lt"), ("=", "eq")):
        if subprocess.run(["dpkg", "--compare-versions", a, word, b], capture_output=True, check=False).returncode == 0:
            return sign
    return ">"
