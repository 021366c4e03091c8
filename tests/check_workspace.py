#!/usr/bin/env python3
"""Checks that every crate of the repository is built and found. Needs nothing but Python and cargo.

`cargo test --workspace` says nothing about a crate that nobody listed, and `cargo lambda watch` starts functions with
`cargo run --bin NAME`, which looks among the default members only.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def manifests_in_tree(root):
    """Every Cargo.toml with a package, outside build output and hidden folders."""
    found = set()
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in ("target", "node_modules") and not name.startswith(".")]
        if "Cargo.toml" in files:
            path = pathlib.Path(folder, "Cargo.toml")
            if "[package]" in path.read_text(encoding="utf-8").splitlines():
                found.add(path.resolve())
    return found


def workspace(root):
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--manifest-path", str(root / "Cargo.toml")]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout)


def complaints(root):
    metadata = workspace(root)
    packages = {pathlib.Path(package["manifest_path"]).resolve(): package for package in metadata["packages"]}
    for path in sorted(manifests_in_tree(root) - set(packages)):
        yield f"{path.relative_to(root)}: not a member of the workspace; add it to `members` in Cargo.toml"
    for path, package in sorted(packages.items()):
        started_by_name = path.parent.parent == root / "functions"
        if started_by_name and package["id"] not in metadata["workspace_default_members"]:
            yield f"{path.relative_to(root)}: not a default member, so `cargo lambda watch` does not find it"
    defaults = [
        package["default_run"]
        for package in packages.values()
        if package["default_run"] and package["id"] in metadata["workspace_default_members"]
    ]
    if defaults != ["lakewarden"]:
        yield f"`cargo run` starts {defaults or 'nothing'} instead of lakewarden (`default-run` of the default members)"


def main():
    found = list(complaints(ROOT))
    for complaint in found:
        print(complaint)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
