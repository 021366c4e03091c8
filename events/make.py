#!/usr/bin/env python3
"""Writes the sample events, expected.json and the table in README.md from the list of samples at the end of this file.

usage: python3 events/make.py [--check]      With --check nothing is written; exit code 1 if anything would change.

To add a sample: add an entry to SAMPLES, run this, and run tests/run rust lambda. Needs nothing but Python.
"""

import base64
import hashlib
import json
import pathlib
import sys
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ACCOUNT = "123456789012"
REGION = "us-east-1"
TIME = "2026-11-29T08:30:00.000Z"
TIME_MS = 1795941000000

# ------------------------------------------------------------------------------------------------------- the objects

ORDERS = "events/web orders"
VISITS = "events/visits"


def objects(folder):
    """Key -> bytes of what one folder below objects/ puts into the bucket `lake`."""
    root = HERE / "objects" / folder / "lake"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def staged_key(folder):
    return next(key for key in objects(folder) if "/_staged_commits/" in key)


def proposal_id(folder):
    return staged_key(folder).split(".")[-2]


def etag(body):
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def current_metadata(folder, prefix):
    return max(key for key in objects(folder) if key.startswith(prefix) and key.endswith(".metadata.json"))


# ---------------------------------------------------------------------------------------------------------- envelopes


def http_event(method, path, body=None, headers=None, route=None, query="", encode=False):
    """API Gateway, HTTP API, payload format 2.0, called with IAM credentials."""
    headers = {
        "accept-encoding": "identity",
        "host": "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com",
        "user-agent": "Boto3/1.44.8",
        "x-amz-date": "20261129T083000Z",
        "x-amzn-trace-id": "Root=1-692ab0c8-0123456789abcdef01234567",
        "x-forwarded-for": "203.0.113.7",
        "x-forwarded-port": "443",
        "x-forwarded-proto": "https",
    } | (headers or {})
    event = {
        "version": "2.0",
        "routeKey": route or f"{method} {path}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": dict(sorted(headers.items())),
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "a1b2c3d4e5",
            "authorizer": {
                "iam": {
                    "accessKey": "AKIAIOSFODNN7EXAMPLE",
                    "accountId": ACCOUNT,
                    "callerId": "AIDACKCEVSQ6C2EXAMPLE",
                    "cognitoIdentity": None,
                    "principalOrgId": None,
                    "userArn": f"arn:aws:iam::{ACCOUNT}:user/analyst",
                    "userId": "AIDACKCEVSQ6C2EXAMPLE",
                }
            },
            "domainName": "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com",
            "domainPrefix": "a1b2c3d4e5",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.7",
                "userAgent": "Boto3/1.44.8",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": route or f"{method} {path}",
            "stage": "$default",
            "time": "29/Nov/2026:08:30:00 +0000",
            "timeEpoch": TIME_MS,
        },
        "isBase64Encoded": False,
    }
    if query:
        event["queryStringParameters"] = dict(urllib.parse.parse_qsl(query))
    if body is not None:
        event["headers"]["content-length"] = str(len(body))
        # The gateway takes text/*, application/json and a few others for text and encodes the rest.
        event["body"] = base64.b64encode(body).decode() if encode else body.decode()
        event["isBase64Encoded"] = encode
    return event


def glue(operation, request, encode=True):
    """A call of an unmodified Glue client. Its content type is not one that the gateway takes for text."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": f"AWSGlue.{operation}"}
    return http_event("POST", "/", body, headers, encode=encode)


def rest(method, path, body=None, query=""):
    route = "ANY /v1/commits" if path == "/v1/commits" else "ANY /v1/{proxy+}"
    if path.startswith("/v1/commits/"):
        route = "ANY /v1/commits/{proxy+}"
    if body is None:
        return http_event(method, path, route=route, query=query)
    return http_event(method, path, json.dumps(body).encode(), {"content-type": "application/json"}, route, query)


def s3_record(key, body, name="ObjectCreated:Put"):
    """One record of an S3 notification; the key is form-encoded there."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": REGION,
        "eventTime": TIME,
        "eventName": name,
        "userIdentity": {"principalId": "AWS:AIDACKCEVSQ6C2EXAMPLE"},
        "requestParameters": {"sourceIPAddress": "203.0.113.7"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/IgAtTv8xRjskZQpcIZ9KG4V5Wp6S7S="},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "staged-commits",
            "bucket": {"name": "lake", "ownerIdentity": {"principalId": "A3NL1KOZZKExample"}, "arn": "arn:aws:s3:::lake"},
            "object": {
                "key": urllib.parse.quote_plus(key, safe="/"),
                "size": len(body),
                "eTag": etag(body),
                "sequencer": "00692AB0C8D2A1F5B1",
            },
        },
    }


def s3_notification(folder):
    key = staged_key(folder)
    return {"Records": [s3_record(key, objects(folder)[key])]}


def eventbridge(folder):
    """S3's `Object Created` event; the key is as it is there."""
    key = staged_key(folder)
    body = objects(folder)[key]
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": ACCOUNT,
        "time": TIME.replace(".000", ""),
        "region": REGION,
        "resources": ["arn:aws:s3:::lake"],
        "detail": {
            "version": "0",
            "bucket": {"name": "lake"},
            "object": {"key": key, "size": len(body), "etag": etag(body), "sequencer": "00692AB0C8D2A1F5B1"},
            "request-id": "C3D13FE58DE4C810",
            "requester": ACCOUNT,
            "source-ip-address": "203.0.113.7",
            "reason": "PutObject",
        },
    }


def sqs(queue, *bodies):
    """A batch; message ids are message-0, message-1, ..."""
    records = []
    for number, body in enumerate(bodies):
        text = body if isinstance(body, str) else json.dumps(body)
        records.append(
            {
                "messageId": f"message-{number}",
                "receiptHandle": f"AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a{number}",
                "body": text,
                "attributes": {
                    "ApproximateReceiveCount": "1",
                    "SentTimestamp": str(TIME_MS),
                    "SenderId": "AIDAIENQZJOLO23YVJ4VO",
                    "ApproximateFirstReceiveTimestamp": str(TIME_MS + 1),
                },
                "messageAttributes": {},
                "md5OfBody": etag(text.encode()),
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:lakewarden-{queue}",
                "awsRegion": REGION,
            }
        )
    return {"Records": records}


def scheduled(schedule):
    """What the schedules of template.yaml send: the shape of EventBridge's scheduled event."""
    return {
        "version": "0",
        "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": TIME.replace(".000", ""),
        "region": REGION,
        "resources": [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/lakewarden-{schedule}"],
        "detail": {},
    }


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
VERSION_1, VERSION_2 = LOG.format(1), LOG.format(2)
SWEEP = {"schema_version": 1, "run_id": "run-of-the-sample", "database": "events", "table": "visits", "mode": "dry_run"}
SWEEPS = "/v1/databases/events/tables/visits/sweeps"
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
    "get_commit": "commit-api",
    "propose_commit": "commit-api",
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
        "Filters are refused by name",
        "partition",
        refused("UnsupportedOperationException"),
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
        "A message that is no event is logged and left out; the other is judged",
        "staged",
        DONE,
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
    # Verdicts and synchronous commits
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
]


# ------------------------------------------------------------------------------------------------------------- output


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


def main():
    files = outputs()
    assert len({entry["file"] for entry in SAMPLES}) == len(SAMPLES), "two samples of one name"
    stale = [name for name, text in files.items() if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != text]
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
