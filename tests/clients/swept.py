"""A table of the catalog whose orphan files are swept, and what a sweep says of it."""

from conftest import LAKE
from lakewarden_server import wait_until

ROLE = "arn:aws:iam::000000000000:role/lakewarden-sweeps"


class Swept:
    """A table of the catalog with an optimizer."""

    def __init__(self, clients, database, table, prefix):
        self.clients, self.server = clients, clients.server
        self.database, self.table, self.prefix = database, table, prefix
        self.path = f"/v1/databases/{database}/tables/{table}/sweeps"

    def optimizer(self):
        names = {"CatalogId": "000000000000", "DatabaseName": self.database, "TableName": self.table}
        return names | {"Type": "orphan_file_deletion"}

    def create_optimizer(self, enabled=True, **configuration):
        """One that is not enabled has no scheduled runs; what is asked for runs all the same."""
        self.clients.glue.create_table_optimizer(
            **self.optimizer(),
            TableOptimizerConfiguration={
                "roleArn": ROLE,
                "enabled": enabled,
                "orphanFileDeletionConfiguration": {"icebergConfiguration": {"orphanFileRetentionPeriodInDays": 3} | configuration},
            },
        )

    def plant(self, relative, body=b"nobody knows me"):
        key = f"{self.prefix}/{relative}"
        self.clients.s3.put_object(Bucket=LAKE, Key=key, Body=body)
        return key

    def keys(self):
        return set(self.clients.objects(self.prefix + "/"))

    def dry_run(self, **options):
        """The record of a finished dry run and its report, line by line. With `sightings=1` orphans are to go at once."""
        run = self.run(mode="dry_run", **options)
        assert run["state"] == "completed", run
        return run, self.report(run["run_id"])

    def run(self, **body):
        """The record of a run that has come to its end."""
        run_id = self.server.ok("POST", self.path, body)["run_id"]

        def ended():
            run = self.server.ok("GET", f"{self.path}/{run_id}")
            return run if run["state"] in ("completed", "failed") else None

        return wait_until(ended, f"run {run_id} ended", 180)

    def explain(self, key, **options):
        path = self.path.removesuffix("/sweeps") + "/explain-sweep"
        return self.server.ok("POST", path, {"key": key} | options)

    def leases(self, lease=""):
        return self.path.removesuffix("/sweeps") + "/leases" + (f"/{lease}" if lease else "")

    def report(self, run_id):
        """The lines of a report, over all its pages."""
        lines, query = [], ""
        while True:
            page = self.server.ok("GET", f"{self.path}/{run_id}/report{query}")
            lines += page["lines"]
            if not page.get("next_token"):
                return lines
            query = f"?next_token={page['next_token']}"

    def pass_days_with_sweeps(self, days):
        """At least one scheduled run a day."""
        for _ in range(days):
            self.server.advance_clock("25h")
            self.server.run_schedule()
            self.server.wait_idle()


def decisions(lines):
    """Key -> reason, from the lines of a report on what was judged; others tell what became of orphans."""
    return {line["key"]: line["reason"] for line in lines if "reason" in line}
