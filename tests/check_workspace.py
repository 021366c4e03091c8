#!/usr/bin/env python3
"""Checks that every crate of the repository is a member of the workspace.

`cargo test --workspace` says nothing about a crate that nobody listed; this does. Needs nothing but Python and cargo.
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


def manifests_in_workspace(root):
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--manifest-path", str(root / "Cargo.toml")]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {pathlib.Path(package["manifest_path"]).resolve() for package in json.loads(answer.stdout)["packages"]}


def main():
    left_out = manifests_in_tree(ROOT) - manifests_in_workspace(ROOT)
    for path in sorted(left_out):
        print(f"{path.relative_to(ROOT)}: not a member of the workspace; add it to `members` in Cargo.toml")
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
