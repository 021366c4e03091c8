"""The objects that samples speak of, and the envelopes in which the platform hands events to functions."""

import base64
import hashlib
import json
import pathlib
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
    if path.startswith("/api/2.1/unity-catalog/"):
        route = "ANY /api/2.1/unity-catalog/{proxy+}"
    if body is None:
        event = http_event(method, path, route=route, query=query)
    else:
        event = http_event(method, path, json.dumps(body).encode(), {"content-type": "application/json"}, route, query)
    if route == "ANY /api/2.1/unity-catalog/{proxy+}":
        # That API takes tokens.
        claims = {"iss": "https://issuer.example.com", "sub": "sail", "aud": "lakewarden", "token_use": "access"}
        event["requestContext"]["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    return event


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
    """S3's event of what a folder stages."""
    key = staged_key(folder)
    return object_created(key, objects(folder)[key])


def object_created(key, body):
    """S3's `Object Created` event; the key is as it is there."""
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
