"""The samples: what each is, the state it needs and what is expected. `make.py` writes the files."""

import json
import urllib.parse

from envelopes import (
    ACCOUNT,
    ORDERS,
    TIME,
    VISITS,
    current_metadata,
    eventbridge,
    glue,
    object_created,
    objects,
    proposal_id,
    rest,
    s3_notification,
    s3_record,
    scheduled,
    sqs,
    staged_key,
)

# ------------------------------------------------------------------------------------------------------- expectations
# Matching is by subset: members that are not named may have any value. In an HTTP answer `body` is its JSON.
# {"$any": true} is any value but null, {"$absent": true} a member that is not there, {"$contains": "x"} a text with x in
# it, and {"$each": [..]} an array that has a match for each entry, in any order and with others beside them.

ANY = {"$any": True}
ABSENT = {"$absent": True}
DONE = {"batchItemFailures": []}


def contains(text):
    return {"$contains": text}


def failed(*messages):
    return {"batchItemFailures": [{"itemIdentifier": f"message-{number}"} for number in messages]}


def answer(status, body=None):
    return {"statusCode": status} | ({} if body is None else {"body": body})


def refused(name, text=None, status=400):
    return answer(status, {"__type": name} | ({"Message": contains(text)} if text else {}))


def verdict_of(folder, expect):
    """What the author of a proposal is told afterwards."""
    name = folder.removeprefix("staged-").replace("-", "_")
    return {"file": f"apigateway-get_commit-{name}.json", "expect": answer(200, expect)}


# ---------------------------------------------------------------------------------------------------------- the states

TABLE = {"DatabaseName": "events", "TableName": "web_orders"}
NAMES = {"DatabaseName": "events", "TableName": "visits"}

# Name -> what has to be there: folders of objects/ and samples that were handled before, in this order.
SETUPS = {
    "empty": [],
    "database": ["apigateway-create_database-new.json"],
    "table": ["apigateway-create_database-new.json", "apigateway-create_table-delta.json"],
}
SETUPS["partition"] = SETUPS["table"] + ["apigateway-create_partition-new.json"]
SETUPS["index"] = SETUPS["partition"] + ["apigateway-create_partition_index-new.json"]
SETUPS["other keys"] = SETUPS["partition"] + ["apigateway-update_table-other_keys.json"]
SETUPS["orders"] = SETUPS["table"] + ["orders"]
SETUPS["staged"] = SETUPS["orders"] + ["staged-append"]
SETUPS["staged extra column"] = SETUPS["orders"] + ["staged-extra-column"]
SETUPS["staged garbage"] = SETUPS["orders"] + ["staged-garbage"]
SETUPS["two deletes"] = SETUPS["orders"] + ["staged-delete", "staged-same-delete"]
SETUPS["committed"] = SETUPS["staged"] + ["sqs-staged_commit-eventbridge.json"]
SETUPS["proposed"] = SETUPS["staged"] + ["apigateway-propose_commit-inline.json"]
SETUPS["extra column judged"] = SETUPS["staged extra column"] + ["sqs-staged_commit-extra_column.json"]
SETUPS["garbage judged"] = SETUPS["staged garbage"] + ["sqs-staged_commit-garbage.json"]
SETUPS["two deletes judged"] = SETUPS["two deletes"] + ["sqs-staged_commit-conflict.json"]
SETUPS["iceberg"] = SETUPS["database"] + ["iceberg", "apigateway-create_table-iceberg.json"]
SETUPS["optimizer"] = SETUPS["iceberg"] + ["apigateway-create_table_optimizer-new.json", "iceberg-orphan"]
SETUPS["swept"] = SETUPS["optimizer"] + ["sqs-sweep-dry_run.json"]
SETUPS["leased"] = SETUPS["optimizer"] + ["apigateway-grant_lease-new.json"]


def descriptor(location):
    return {
        "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "amount", "Type": "double"}],
        "Location": location,
        "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
    }


def partition(day):
    return {"Values": [day], "StorageDescriptor": descriptor(f"s3://lake/{ORDERS}/dt={day}"), "Parameters": {"rows": "2"}}


def delta_table():
    return {
        "Name": "web_orders",
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": [{"Name": "dt", "Type": "string"}],
        "StorageDescriptor": descriptor(f"s3://lake/{ORDERS}"),
        "Parameters": {"table_type": "DELTA", "spark.sql.sources.provider": "delta"},
    }


def iceberg_table():
    return {
        "Name": "visits",
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": {"Location": f"s3://lake/{VISITS}", "Columns": descriptor("")["Columns"]},
        "Parameters": {"table_type": "ICEBERG", "metadata_location": f"s3://lake/{current_metadata('iceberg', VISITS)}"},
    }


def optimizer_request(**more):
    return {"CatalogId": "000000000000", **NAMES, "Type": "orphan_file_deletion"} | more


def inline_commit(folder):
    lines = objects(folder)[staged_key(folder)].decode().splitlines()
    return {
        "location": f"s3://lake/{ORDERS}",
        "read_version": 0,
        "proposal_id": "77777777-7777-4777-8777-777777777777",
        "actions": [json.loads(line) for line in lines],
    }


LOG = f"{ORDERS}/_delta_log/{{:020}}.json"
VERSION_0, VERSION_1, VERSION_2 = LOG.format(0), LOG.format(1), LOG.format(2)
ORDERS_AT = f"s3://lake/{ORDERS}"
SWEEP = {"schema_version": 1, "run_id": "run-of-the-sample", "database": "events", "table": "visits", "mode": "dry_run"}
SWEEPS = "/v1/databases/events/tables/visits/sweeps"
EXPLAIN = "/v1/databases/events/tables/visits/explain-sweep"
LEASES = "/v1/databases/events/tables/visits/leases"
COMMITTED = {"status": "committed", "final": True, "version": 1}
REFUSED = {"status": "rejected", "final": True, "reason": ANY, "message": ANY, "advice": ANY}

# --------------------------------------------------------------------------------------------------------- the samples


def sample(file, event, about, setup, expect, then=(), there=(), missing=()):
    """`then` are further samples and what they answer afterwards; `there` and `missing` are keys of the bucket `lake`."""
    function = FUNCTIONS.get(file.split("-")[1]) or ("catalog-api" if file.startswith("apigateway-") else None)
    return {
        "file": file,
        "event": event,
        "about": about,
        "function": function,
        "setup": setup,
        "expect": expect,
        "then": list(then),
        "there": list(there),
        "missing": list(missing),
    }


# By the second part of a sample's name.
FUNCTIONS = {
    "staged_commit": "commit-validator",
    "log_work": "commit-validator",
    "get_commit": "commit-api",
    "list_commits": "commit-api",
    "propose_commit": "commit-api",
    "ask_for_upload": "commit-api",
    "unity": "commit-api",
    "plan_sweeps": "sweep-planner",
    "sweep": "orphan-sweeper",
    "catalog_work": "catalog-worker",
}

SAMPLES = [
    # The catalog, as Glue clients call it
    sample(
        "apigateway-create_database-new.json",
        glue("CreateDatabase", {"DatabaseInput": {"Name": "events", "Description": "samples"}}),
        "A database is created",
        "empty",
        answer(200, {}),
    ),
    sample(
        "apigateway-create_database-again.json",
        glue("CreateDatabase", {"DatabaseInput": {"Name": "Events"}}),
        "Its name in other case is taken",
        "database",
        refused("AlreadyExistsException", "Database already exists."),
    ),
    sample(
        "apigateway-get_database-found.json",
        glue("GetDatabase", {"Name": "events"}),
        "A database is read",
        "database",
        answer(200, {"Database": {"Name": "events", "Description": "samples", "CatalogId": ANY, "CreateTime": ANY}}),
    ),
    sample(
        "apigateway-get_database-missing.json",
        glue("GetDatabase", {"Name": "nosuch"}),
        "A database that is not there, by its exact error",
        "empty",
        refused("EntityNotFoundException", "Database nosuch not found."),
    ),
    sample(
        "apigateway-create_table-delta.json",
        glue("CreateTable", {"DatabaseName": "events", "TableInput": delta_table()}),
        "A partitioned Delta table is registered",
        "database",
        answer(200, {}),
    ),
    sample(
        "apigateway-create_table-iceberg.json",
        glue("CreateTable", {"DatabaseName": "events", "TableInput": iceberg_table()}),
        "An Iceberg table is registered",
        "database",
        answer(200, {}),
    ),
    sample(
        "apigateway-get_table-found.json",
        glue("GetTable", {"DatabaseName": "events", "Name": "web_orders"}),
        "A table is read",
        "table",
        answer(
            200,
            {
                "Table": {
                    "Name": "web_orders",
                    "DatabaseName": "events",
                    "VersionId": "0",
                    "PartitionKeys": [{"Name": "dt", "Type": "string"}],
                    "StorageDescriptor": {"Location": f"s3://lake/{ORDERS}"},
                }
            },
        ),
    ),
    sample(
        "apigateway-get_table-plain_body.json",
        glue("GetTable", {"DatabaseName": "events", "Name": "web_orders", "MemberOfTheFuture": None}, encode=False),
        "The same with a body that is not base64 and a member nobody knows",
        "table",
        answer(200, {"Table": {"Name": "web_orders"}}),
    ),
    sample(
        "apigateway-create_partition-new.json",
        glue("CreatePartition", TABLE | {"PartitionInput": partition("2026-01-01")}),
        "A partition is created",
        "table",
        answer(200, {}),
    ),
    sample(
        "apigateway-create_partition-wrong_count.json",
        glue("CreatePartition", TABLE | {"PartitionInput": {"Values": ["2026-01-01", "7"]}}),
        "More values than partition keys",
        "table",
        refused("InvalidInputException", "number of partition keys do not match"),
    ),
    sample(
        "apigateway-batch_create_partition-duplicate.json",
        glue("BatchCreatePartition", TABLE | {"PartitionInputList": [partition("2026-01-01"), partition("2026-01-02")]}),
        "Of a batch the new one stays, the other comes back in Errors",
        "partition",
        answer(
            200,
            {"Errors": [{"PartitionValues": ["2026-01-01"], "ErrorDetail": {"ErrorCode": "AlreadyExistsException"}}]},
        ),
        then=[{"file": "apigateway-get_partition-second.json", "expect": answer(200)}],
    ),
    sample(
        "apigateway-get_partition-found.json",
        glue("GetPartition", TABLE | {"PartitionValues": ["2026-01-01"]}),
        "A partition is read",
        "partition",
        answer(
            200,
            {
                "Partition": {
                    "Values": ["2026-01-01"],
                    "DatabaseName": "events",
                    "TableName": "web_orders",
                    "StorageDescriptor": {"Location": f"s3://lake/{ORDERS}/dt=2026-01-01"},
                    "Parameters": {"rows": "2"},
                    "CreationTime": ANY,
                }
            },
        ),
    ),
    sample(
        "apigateway-get_partition-second.json",
        glue("GetPartition", TABLE | {"PartitionValues": ["2026-01-02"]}),
        "A partition that is not there",
        "partition",
        refused("EntityNotFoundException", "Cannot find partition."),
    ),
    sample(
        "apigateway-get_partition-third.json",
        glue("GetPartition", TABLE | {"PartitionValues": ["2026-01-03"]}),
        "A partition that a commit added",
        "committed",
        answer(200, {"Partition": {"StorageDescriptor": {"Location": f"s3://lake/{ORDERS}/dt=2026-01-03"}}}),
    ),
    sample(
        "apigateway-get_partitions-all.json",
        glue("GetPartitions", TABLE | {"MaxResults": 10}),
        "All partitions on the last page",
        "partition",
        answer(200, {"Partitions": [{"Values": ["2026-01-01"]}], "NextToken": ABSENT}),
    ),
    sample(
        "apigateway-get_partitions-filter.json",
        glue("GetPartitions", TABLE | {"Expression": "dt = '2026-01-01'"}),
        "What a filter selects",
        "partition",
        answer(200, {"Partitions": [{"Values": ["2026-01-01"]}], "NextToken": ABSENT}),
    ),
    sample(
        "apigateway-get_partitions-limit.json",
        glue("GetPartitions", TABLE | {"MaxResults": 1001}),
        "Limits of the model are checked with its text",
        "partition",
        refused("ValidationException", "Member must have value less than or equal to 1000"),
    ),
    sample(
        "apigateway-delete_partition-found.json",
        glue("DeletePartition", TABLE | {"PartitionValues": ["2026-01-01"]}),
        "A partition is deleted",
        "partition",
        answer(200, {}),
        then=[{"file": "apigateway-get_partition-found.json", "expect": refused("EntityNotFoundException")}],
    ),
    sample(
        "apigateway-create_partition_index-new.json",
        glue("CreatePartitionIndex", TABLE | {"PartitionIndex": {"IndexName": "by_day", "Keys": ["dt"]}}),
        "A partition index is created; the worker fills it",
        "partition",
        answer(200, {}),
    ),
    sample(
        "apigateway-create_partition_index-wrong_key.json",
        glue("CreatePartitionIndex", TABLE | {"PartitionIndex": {"IndexName": "by_user", "Keys": ["user"]}}),
        "A key that is none of the table's, by its exact error",
        "partition",
        refused("InvalidInputException", "IndexKeys not a part of PartitionColumns. Verify the indexKeys : [user]"),
    ),
    sample(
        "apigateway-get_partition_indexes-found.json",
        glue("GetPartitionIndexes", TABLE),
        "The indexes of a table, in whichever state the worker has brought them to",
        "index",
        answer(
            200,
            {
                "PartitionIndexDescriptorList": [
                    {"IndexName": "by_day", "Keys": [{"Name": "dt", "Type": "string"}], "IndexStatus": ANY}
                ]
            },
        ),
    ),
    sample(
        "apigateway-update_table-other_keys.json",
        glue(
            "UpdateTable",
            {
                "DatabaseName": "events",
                "TableInput": delta_table()
                | {"PartitionKeys": [{"Name": "day", "Type": "date"}, {"Name": "region", "Type": "string"}]},
            },
        ),
        "Other partition keys: partitions stay until they are deleted, and are re-keyed by the worker",
        "partition",
        answer(200, {}),
        then=[{"file": "apigateway-get_partition-found.json", "expect": answer(200, {"Partition": {"Values": ["2026-01-01"]}})}],
    ),
    sample(
        "apigateway-delete_partition-other_keys.json",
        glue("DeletePartition", TABLE | {"PartitionValues": ["2026-01-01"]}),
        "A partition is deleted by values of another number than the table has keys by now",
        "other keys",
        answer(200, {}),
    ),
    sample(
        "apigateway-unknown-operation.json",
        glue("GetCrawlers", {}),
        "An operation that is not served is refused by name, with a list of what is",
        "empty",
        refused("UnknownOperationException", "GetPartitions"),
    ),
    sample(
        "apigateway-unknown-body.json",
        glue("GetDatabase", b'{"Name": '),
        "A body that is not JSON",
        "empty",
        refused("SerializationException"),
    ),
    # The catalog, for people
    sample(
        "apigateway-list_partitions-rest.json",
        rest("GET", "/v1/databases/events/tables/web_orders/partitions", query="max_results=10"),
        "REST: partitions of a table",
        "partition",
        answer(200, {"Partitions": [{"Values": ["2026-01-01"]}]}),
    ),
    sample(
        "apigateway-get_table-rest_missing.json",
        rest("GET", "/v1/databases/events/tables/nosuch"),
        "REST: the same error with a proper status",
        "database",
        refused("EntityNotFoundException", status=404),
    ),
    sample(
        "apigateway-unknown-route.json",
        rest("GET", "/v1/nothing"),
        "REST: a route that is not there lists those that are",
        "empty",
        refused("UnknownOperationException", "/v1/databases", status=404),
    ),
    # Background work of the catalog
    sample(
        "sqs-catalog_work-purge_again.json",
        sqs("catalog-work", {"schema_version": 1, "kind": "purge_table", "table_id": "nobody-has-this-id"}),
        "A table that has been purged already",
        "empty",
        DONE,
    ),
    sample(
        "sqs-catalog_work-malformed.json",
        sqs("catalog-work", {"schema_version": 1, "kind": "purge_table", "table_id": "nobody-has-this-id"}, "not json"),
        "A message that cannot be read comes back, and after its last delivery is a dead letter; the other is done",
        "empty",
        failed(1),
    ),
    sample(
        "sqs-catalog_work-settle_again.json",
        sqs("catalog-work", {"schema_version": 1, "kind": "settle_table", "table_id": "nobody-has-this-id"}),
        "A table whose items are as its head says already: the work was done by an earlier delivery",
        "empty",
        DONE,
    ),
    sample(
        "eventbridge-catalog_work-leftovers.json",
        scheduled("catalog-worker"),
        "Work whose message was lost is queued again; here there is none",
        "empty",
        {"queued": 0},
    ),
    # Staged commits, in every shape in which they arrive
    sample(
        "sqs-staged_commit-eventbridge.json",
        sqs("commits", eventbridge("staged-append")),
        "A staged append becomes version 1 (EventBridge's event in a queue: how template.yaml wires it)",
        "staged",
        DONE,
        then=[
            verdict_of("staged-append", COMMITTED),
            {"file": "apigateway-get_partition-third.json", "expect": answer(200)},
        ],
        there=[VERSION_1],
    ),
    sample(
        "sqs-staged_commit-s3.json",
        sqs("commits", s3_notification("staged-append")),
        "The same as S3's notification in a queue; the key is form-encoded",
        "staged",
        DONE,
        then=[verdict_of("staged-append", COMMITTED)],
        there=[VERSION_1],
    ),
    sample(
        "s3-staged_commit-direct.json",
        s3_notification("staged-append"),
        "The same as S3's notification itself",
        "staged",
        ANY,
        then=[verdict_of("staged-append", COMMITTED)],
        there=[VERSION_1],
    ),
    sample(
        "eventbridge-staged_commit-direct.json",
        eventbridge("staged-append"),
        "The same as EventBridge's event itself",
        "staged",
        ANY,
        then=[verdict_of("staged-append", COMMITTED)],
        there=[VERSION_1],
    ),
    sample(
        "sqs-staged_commit-twice.json",
        sqs("commits", eventbridge("staged-append"), s3_notification("staged-append")),
        "Delivered twice, committed once",
        "staged",
        DONE,
        then=[verdict_of("staged-append", COMMITTED)],
        there=[VERSION_1],
        missing=[VERSION_2],
    ),
    sample(
        "sqs-staged_commit-extra_column.json",
        sqs("commits", eventbridge("staged-extra-column")),
        "A Parquet file with a column that the table has not: refused, nothing published",
        "staged extra column",
        DONE,
        then=[verdict_of("staged-extra-column", REFUSED | {"exception": "SchemaMismatchException"})],
        missing=[VERSION_1],
    ),
    sample(
        "sqs-staged_commit-conflict.json",
        sqs("commits", eventbridge("staged-delete"), eventbridge("staged-same-delete")),
        "Two deletes of one file: the first is committed, the second refused by name",
        "two deletes",
        DONE,
        then=[
            verdict_of("staged-delete", COMMITTED),
            verdict_of("staged-same-delete", REFUSED | {"exception": contains("ConcurrentDelete")}),
        ],
        there=[VERSION_1],
        missing=[VERSION_2],
    ),
    sample(
        "sqs-staged_commit-garbage.json",
        sqs("commits", eventbridge("staged-garbage")),
        "A staged object that is no commit: a verdict, not a failure",
        "staged garbage",
        DONE,
        then=[verdict_of("staged-garbage", REFUSED)],
        missing=[VERSION_1],
    ),
    sample(
        "sqs-staged_commit-malformed.json",
        sqs("commits", "not json", eventbridge("staged-append")),
        "A message that is no event comes back, and after its last delivery is a dead letter; the other is judged",
        "staged",
        failed(0),
        then=[verdict_of("staged-append", COMMITTED)],
    ),
    sample(
        "sqs-staged_commit-test_event.json",
        sqs(
            "commits",
            {
                "Service": "Amazon S3",
                "Event": "s3:TestEvent",
                "Time": TIME,
                "Bucket": "lake",
                "RequestId": "5582815E1AEA5ADF",
                "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR",
            },
        ),
        "What S3 sends when notifications are switched on: nothing to do",
        "empty",
        DONE,
    ),
    sample(
        "sqs-staged_commit-foreign_key.json",
        sqs("commits", {"Records": [s3_record("events/notes/a+b.json", b"hello")]}),
        "An object that is no staged commit: nothing to do",
        "empty",
        DONE,
    ),
    # What others put into logs, and what is due for them
    sample(
        "sqs-log_work-version.json",
        sqs("log-work", object_created(VERSION_0, objects("orders")[VERSION_0])),
        "A version that its writer put into the log of a table of the catalog is judged after the fact",
        "orders",
        DONE,
        then=[
            {
                "file": "apigateway-list_commits-orders.json",
                "expect": answer(200, {"commits": [{"status": "already_visible", "version": 0, "exception": ABSENT}]}),
            }
        ],
    ),
    sample(
        "sqs-log_work-housekeeping.json",
        sqs("log-work", {"schema_version": 1, "kind": "housekeeping", "location": ORDERS_AT}),
        "What is due for a table from time to time; here nothing",
        "committed",
        DONE,
        there=[VERSION_1, staged_key("staged-append")],
    ),
    sample(
        "sqs-log_work-follow.json",
        sqs("log-work", {"schema_version": 1, "kind": "follow", "location": ORDERS_AT}),
        "The catalog's tables at a location follow the log, which they do already",
        "committed",
        DONE,
    ),
    sample(
        "sqs-staged_commit-publish.json",
        sqs("commits", {"schema_version": 1, "kind": "publish", "location": ORDERS_AT}),
        "What commit calls ratified is published; of a table that is not catalog-managed there is nothing",
        "committed",
        DONE,
        missing=[VERSION_2],
    ),
    # Verdicts and synchronous commits
    sample(
        "apigateway-list_commits-orders.json",
        rest("GET", "/v1/commits", query=urllib.parse.urlencode({"location": ORDERS_AT})),
        "All verdicts of a table, newest first",
        "committed",
        answer(200, {"commits": [COMMITTED]}),
    ),
    sample(
        "apigateway-get_commit-append.json",
        rest("GET", f"/v1/commits/{proposal_id('staged-append')}"),
        "The verdict on a commit",
        "committed",
        answer(200, COMMITTED | {"location": f"s3://lake/{ORDERS}", "read_version": 0}),
    ),
    sample(
        "apigateway-get_commit-extra_column.json",
        rest("GET", f"/v1/commits/{proposal_id('staged-extra-column')}"),
        "A refused one says which exception a writer would raise, why, and what to do",
        "extra column judged",
        answer(200, REFUSED | {"exception": "SchemaMismatchException", "place": {"column": "discount"}}),
    ),
    sample(
        "apigateway-get_commit-delete.json",
        rest("GET", f"/v1/commits/{proposal_id('staged-delete')}"),
        "The winner of two deletes of one file",
        "two deletes judged",
        answer(200, COMMITTED),
    ),
    sample(
        "apigateway-get_commit-same_delete.json",
        rest("GET", f"/v1/commits/{proposal_id('staged-same-delete')}"),
        "The loser of two deletes of one file",
        "two deletes judged",
        answer(200, REFUSED | {"exception": contains("ConcurrentDelete"), "winner": {"version": 1}}),
    ),
    sample(
        "apigateway-get_commit-garbage.json",
        rest("GET", f"/v1/commits/{proposal_id('staged-garbage')}"),
        "What is wrong with a staged object that is no commit",
        "garbage judged",
        answer(200, REFUSED | {"exception": "InvalidCommitException"}),
    ),
    sample(
        "apigateway-get_commit-missing.json",
        rest("GET", "/v1/commits/00000000-0000-4000-8000-000000000000"),
        "Nobody proposed this",
        "empty",
        answer(404),
    ),
    sample(
        "apigateway-propose_commit-inline.json",
        rest("POST", "/v1/commits", inline_commit("staged-append")),
        "The same commit with its actions in the request",
        "staged",
        answer(200, COMMITTED),
        there=[VERSION_1],
    ),
    sample(
        "apigateway-propose_commit-reused_id.json",
        rest("POST", "/v1/commits", inline_commit("staged-append") | {"actions": inline_commit("staged-delete")["actions"]}),
        "An id that was used for other content",
        "proposed",
        answer(409),
        missing=[VERSION_2],
    ),
    sample(
        "apigateway-ask_for_upload-new.json",
        rest("POST", "/v1/commits/uploads", {"location": f"s3://lake/{ORDERS}", "read_version": 0}),
        "An address for a commit that is too large for a call",
        "orders",
        answer(200, {"upload": {"method": "PUT", "url": ANY}, "staged_key": contains("_staged_commits/00000000000000000001.")}),
    ),
    # Unity Catalog's calls
    sample(
        "apigateway-unity-get_table.json",
        rest("GET", "/api/2.1/unity-catalog/tables/unity%2Eevents%2Eweb_orders"),
        "A table as Unity Catalog's clients see it, its name encoded as they do",
        "table",
        answer(200, {"name": "web_orders", "catalog_name": "unity", "data_source_format": "DELTA", "table_id": ANY}),
    ),
    sample(
        "apigateway-unity-create_schema.json",
        rest(
            "POST",
            "/api/2.1/unity-catalog/schemas",
            {"name": "managed", "catalog_name": "unity", "storage_root": "s3://lake/managed"},
        ),
        "A schema with a place for managed tables is created",
        "empty",
        answer(200, {"full_name": "unity.managed", "storage_root": "s3://lake/managed"}),
    ),
    sample(
        "apigateway-unity-commit_unknown.json",
        rest(
            "POST",
            "/api/2.1/unity-catalog/delta/preview/commits",
            {"table_id": "77777777-7777-4777-8777-777777777777", "latest_backfilled_version": 0},
        ),
        "A commit call for a table that there is not",
        "table",
        answer(404, {"error_code": "NOT_FOUND"}),
    ),
    # Sweeps
    sample(
        "apigateway-create_table_optimizer-new.json",
        glue(
            "CreateTableOptimizer",
            optimizer_request(
                TableOptimizerConfiguration={
                    "roleArn": f"arn:aws:iam::{ACCOUNT}:role/lakewarden-sweeps",
                    "enabled": True,
                    "orphanFileDeletionConfiguration": {"icebergConfiguration": {"orphanFileRetentionPeriodInDays": 3}},
                }
            ),
        ),
        "A table is put under the sweeper's care",
        "iceberg",
        answer(200, {}),
    ),
    sample(
        "apigateway-get_table_optimizer-found.json",
        glue("GetTableOptimizer", optimizer_request()),
        "Its optimizer is read",
        "optimizer",
        answer(200, {"TableOptimizer": {"type": "orphan_file_deletion", "configuration": {"enabled": True}}}),
    ),
    sample(
        "eventbridge-plan_sweeps-due.json",
        scheduled("sweep-planner"),
        "One table is due",
        "optimizer",
        {"optimizers": 1, "started": 1},
        then=[{"file": "eventbridge-plan_sweeps-nothing.json", "expect": {"optimizers": 1, "started": 0}}],
    ),
    sample(
        "eventbridge-plan_sweeps-nothing.json",
        scheduled("sweep-planner"),
        "Nothing is due",
        "empty",
        {"optimizers": 0, "started": 0},
    ),
    sample(
        "sqs-sweep-dry_run.json",
        sqs("sweeps", SWEEP),
        "A dry run of one table; what it decided is in its report",
        "optimizer",
        DONE,
        then=[
            {"file": "apigateway-get_sweep-finished.json", "expect": answer(200, {"state": "completed"})},
            {"file": "apigateway-get_sweep_report-finished.json", "expect": answer(200)},
        ],
        there=list(objects("iceberg-orphan")),
    ),
    sample(
        "sqs-sweep-unknown_table.json",
        sqs("sweeps", SWEEP | {"table": "nosuch"}),
        "A table that is not there: dropped, there is no record to say so in",
        "empty",
        DONE,
    ),
    sample(
        "sqs-sweep-malformed.json",
        sqs("sweeps", "not json", SWEEP | {"mode": "everything"}),
        "Messages that cannot be read come back, and after their last delivery are dead letters",
        "empty",
        failed(0, 1),
    ),
    sample(
        "apigateway-start_sweep-dry_run.json",
        rest("POST", SWEEPS, {"mode": "dry_run"}),
        "A dry run is asked for",
        "optimizer",
        answer(202, {"run_id": ANY, "state": "queued"}),
    ),
    sample(
        "apigateway-get_sweep-finished.json",
        rest("GET", f"{SWEEPS}/{SWEEP['run_id']}"),
        "The record of a run",
        "swept",
        answer(200, {"run_id": SWEEP["run_id"], "mode": "dry_run", "state": "completed", "deleted": {"count": 0}}),
    ),
    sample(
        "apigateway-get_sweep_report-finished.json",
        rest("GET", f"{SWEEPS}/{SWEEP['run_id']}/report"),
        "Its report: one line for each object, with a reason",
        "swept",
        answer(
            200,
            {
                "lines": {
                    "$each": [
                        {"key": current_metadata("iceberg", VISITS), "decision": "keep", "reason": "referenced"},
                        {"key": next(iter(objects("iceberg-orphan"))), "decision": "keep", "reason": "creation_gate"},
                    ]
                }
            },
        ),
    ),
    sample(
        "apigateway-explain_sweep-orphan.json",
        rest("POST", EXPLAIN, {"key": next(iter(objects("iceberg-orphan")))}),
        "What a sweep would decide on one object, and why",
        "optimizer",
        answer(200, {"exists": True, "decision": "keep", "reason": "creation_gate", "because": ANY, "held": "no"}),
    ),
    sample(
        "apigateway-explain_sweep-missing.json",
        rest("POST", EXPLAIN, {"key": f"s3://lake/{VISITS}/data/nosuch.parquet"}),
        "An object that is not there",
        "optimizer",
        answer(200, {"exists": False, "held": "no"}),
    ),
    sample(
        "apigateway-grant_lease-new.json",
        rest("POST", LEASES, {"prefixes": [f"s3://lake/{VISITS}/data/"], "ttl_seconds": 600, "holder": "nightly"}),
        "A writer announces what it is about to write",
        "optimizer",
        answer(201, {"lease_id": ANY, "prefixes": [f"s3://lake/{VISITS}/data/"], "holder": "nightly", "missing": []}),
        then=[{"file": "apigateway-list_leases-granted.json", "expect": answer(200)}],
    ),
    sample(
        "apigateway-grant_lease-outside.json",
        rest("POST", LEASES, {"prefixes": ["s3://lake/elsewhere/"]}),
        "Outside the table's location",
        "optimizer",
        answer(422, {"__type": "InvalidInputException"}),
    ),
    sample(
        "apigateway-list_leases-granted.json",
        rest("GET", LEASES),
        "Leases of a table",
        "leased",
        answer(200, {"leases": {"$each": [{"holder": "nightly", "expires_at_ms": ANY}]}}),
    ),
    sample(
        "apigateway-renew_lease-unknown.json",
        rest("PUT", f"{LEASES}/nosuch", {"ttl_seconds": 600}),
        "A heartbeat for a lease that was given back",
        "leased",
        answer(404, {"__type": "EntityNotFoundException"}),
    ),
]
