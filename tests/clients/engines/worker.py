"""How an engine in a process of its own is spoken to: one JSON request per line on stdin, one answer per line on stdout."""

import json
import os
import sys
import traceback


def serve(operations):
    """Answers requests `{"do": name, ...}` with `operations[name](...)` until stdin ends."""
    # What the engine prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps({"ok": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": operations[request.pop("do")](**request)}
        except Exception as error:  # told to the test, which expects it or not
            traceback.print_exc()
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
