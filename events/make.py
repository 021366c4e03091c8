#!/usr/bin/env python3
"""Writes the sample events, expected.json and the table in README.md.

usage: python3 events/make.py [--check]      With --check nothing is written; exit code 1 if anything would change.

To add a sample: add an entry to SAMPLES in samples.py, run this, and run tests/run rust lambda. Needs nothing but Python.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True

from samples import ANY, SAMPLES, SETUPS

HERE = pathlib.Path(__file__).resolve().parent


def expected():
    """Machine-readable: what each sample needs and answers."""
    setups = {}
    for name, steps in SETUPS.items():
        setups[name] = [{"event": step} if step.endswith(".json") else {"put": step} for step in steps]
    keep = ("file", "function", "setup", "expect", "then", "there", "missing")
    samples = [{name: entry[name] for name in keep if entry[name] or name == "expect"} for entry in SAMPLES]
    return {"setups": setups, "samples": samples}


def verdict(expect):
    """A few words on what is expected, for the table."""
    if "statusCode" in expect:
        name = (expect.get("body") or {}).get("__type") if isinstance(expect.get("body"), dict) else None
        return f"{expect['statusCode']}" + (f" {name}" if name else "")
    if "batchItemFailures" in expect:
        names = [entry["itemIdentifier"] for entry in expect["batchItemFailures"]]
        return "every message done" if not names else f"comes back: {', '.join(names)}"
    return "done" if expect == ANY else ", ".join(f"{name} {value}" for name, value in expect.items())


def table():
    rows = ["| file | function | state it needs | what it is | expected |", "|---|---|---|---|---|"]
    for entry in SAMPLES:
        words = verdict(entry["expect"])
        for then in entry["then"]:
            body = then["expect"].get("body")
            if isinstance(body, dict) and "status" in body:
                words += f"; then {body['status']}" + (f" as version {body['version']}" if "version" in body else "")
        rows.append(f"| `{entry['file']}` | {entry['function']} | {entry['setup']} | {entry['about']} | {words} |")
    return "\n".join(rows)


def outputs():
    files = {entry["file"]: json.dumps(entry["event"], indent=2) + "\n" for entry in SAMPLES}
    files["expected.json"] = json.dumps(expected(), indent=2) + "\n"
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    head, _, rest_of_it = readme.partition("<!-- table -->\n")
    _, _, tail = rest_of_it.partition("<!-- end of table -->\n")
    files["README.md"] = f"{head}<!-- table -->\n{table()}\n<!-- end of table -->\n{tail}"
    return files


def read(name):
    path = HERE / name
    return path.read_text(encoding="utf-8") if path.exists() else None


def main():
    files = outputs()
    assert len({entry["file"] for entry in SAMPLES}) == len(SAMPLES), "two samples of one name"
    stale = [name for name, text in files.items() if read(name) != text]
    surplus = sorted(path.name for path in HERE.glob("*.json") if path.name not in files)
    if "--check" in sys.argv[1:]:
        for name in stale + surplus:
            print(f"events/{name} is not what events/make.py writes")
        return 1 if stale or surplus else 0
    for name in stale:
        (HERE / name).write_text(files[name], encoding="utf-8")
        print(f"events/{name}")
    for name in surplus:
        (HERE / name).unlink()
        print(f"events/{name} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
