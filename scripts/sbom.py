"""Writes the bill of materials of the released binary in the format of CycloneDX: sbom.py VERSION.

Packages come from the lock file, as cargo resolves it for the binary without its tests, with licenses and checksums. The
library of the project CycloneDX writes the document and validates it against the schema.
"""

import json
import os
import subprocess
import sys
import tomllib
from datetime import datetime, timezone
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL


def metadata(*arguments):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *arguments]
    return json.loads(subprocess.check_output(command))


def shipped(graph):
    """Packages that the binary is made of, as ids, with the ids that each depends on."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    root = next(p["id"] for p in graph["packages"] if p["name"] == "plimsoll")
    found, waiting = {}, [root]
    while waiting:
        id = waiting.pop()
        if id in found:
            continue
        kinds = ((each["pkg"], each["dep_kinds"]) for each in nodes[id]["deps"])
        found[id] = [pkg for pkg, all in kinds if any(kind["kind"] != "dev" for kind in all)]
        waiting.extend(found[id])
    return root, found


def component(package, checksums, licenses):
    name, version = package["name"], package["version"]
    made = Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("cargo", None, name, version),
        description=package["description"],
    )
    if package["license"]:
        made.licenses.add(licenses.make_from_string(package["license"].replace("/", " OR ")))
    checksum = checksums.get((name, version))
    if checksum:
        made.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=checksum))
    return made


def main():
    version = sys.argv[1]
    host = subprocess.check_output(["rustc", "-vV"], text=True)
    host = next(line[6:] for line in host.splitlines() if line.startswith("host: "))
    graph = metadata("--filter-platform", host)
    packages = {package["id"]: package for package in graph["packages"]}
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in locked}
    root, found = shipped(graph)
    licenses = LicenseFactory()
    components = {id: component(packages[id], checksums, licenses) for id in sorted(found)}
    program = components.pop(root)
    program.type = ComponentType.APPLICATION
    # The same commit gives the same document.
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"plimsoll {version}"))
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), timezone.utc)
    bom.metadata.component = program
    for each in components.values():
        bom.components.add(each)
    everything = {**components, root: program}
    for id, needed in found.items():
        bom.register_dependency(everything[id], [everything[one] for one in needed])
    text = JsonV1Dot5(bom).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    if problem:
        sys.exit(f"the bill of materials is not valid: {problem}")
    print(text)


main()
