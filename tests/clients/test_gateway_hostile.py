"""Requests at the guarded S3 that try to get past the judge, or to change what is published."""

import json
import time
import urllib.parse

import pytest
import requests
from botocore.exceptions import ClientError

import pyarrow as pa

from conftest import LAKE, Clients
from delta import Delta
from guarded import Guarded, Raw


@pytest.fixture(scope="module")
def guarded(server):
    return Clients(Guarded(server))


@pytest.fixture
def delta(guarded, unique):
    delta = Delta(guarded, unique)
    delta.write(pa.table({"id": pa.array([1], pa.int64()), "dt": ["a"]}))
    return delta


def log(delta, version):
    return f"{delta.prefix}/_delta_log/{version:020}.json"


COMMIT = b'{"commitInfo":{"operation":"X"}}\n{"txn":{"appId":"a","version":1}}\n'
BROKEN = b'{"add":{"path":"nowhere.parquet","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}\n'


def refused(call, **arguments):
    """Status and message of what must be refused."""
    with pytest.raises(ClientError) as error:
        call(**arguments)
    response = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"].get("Message", "")


def everything(clients, delta):
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=delta.prefix + "/")
    found = (entry for page in pages for entry in page.get("Contents", []))
    return {entry["Key"]: (entry["ETag"], entry["LastModified"]) for entry in found if "_staged_commits/" not in entry["Key"]}


def test_a_published_log_file_stays_as_it_is(guarded, delta, clients):
    s3, key = guarded.s3, log(delta, 0)
    before = everything(clients, delta)
    put = {"Bucket": LAKE, "Key": key}
    assert refused(s3.put_object, **put, Body=COMMIT, IfNoneMatch="*")[0] == 412
    status, text = refused(s3.put_object, **put, Body=COMMIT)
    assert status == 403 and "published" in text
    etag = s3.head_object(**put)["ETag"]
    assert refused(s3.put_object, **put, Body=COMMIT, IfMatch=etag)[0] == 403
    assert refused(s3.delete_object, **put)[0] == 403
    assert refused(s3.delete_object, **put, VersionId="null")[0] == 403
    other = f"{delta.prefix}/other.json"
    s3.put_object(Bucket=LAKE, Key=other, Body=COMMIT)
    assert refused(s3.copy_object, **put, CopySource={"Bucket": LAKE, "Key": other})[0] == 403
    assert refused(s3.copy_object, **put, CopySource=put, MetadataDirective="REPLACE")[0] == 403
    assert refused(s3.create_multipart_upload, **put)[0] == 403
    assert refused(s3.put_object_tagging, **put, Tagging={"TagSet": []})[0] == 403
    assert refused(s3.put_object_acl, **put, ACL="public-read")[0] == 403
    answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": key}, {"Key": other}]})
    assert [one["Key"] for one in answer["Deleted"]] == [other]
    assert [(one["Key"], one["Code"]) for one in answer["Errors"]] == [(key, "AccessDenied")]
    quiet = s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": key}], "Quiet": True})
    assert [one["Key"] for one in quiet["Errors"]] == [key]
    assert everything(clients, delta) == before
    # The very same bytes change nothing.
    body = s3.get_object(**put)["Body"].read()
    assert s3.put_object(**put, Body=body)["ETag"] == etag
    assert everything(clients, delta) == before


def test_a_version_that_is_not_there_is_replaced_by_nobody(guarded, delta, clients):
    """As S3 has it: If-Match on nothing is 404, on something else 412; and what could be replaced is published."""
    s3, there, absent = guarded.s3, log(delta, 0), log(delta, 1)
    before = everything(clients, delta)
    etag = s3.head_object(Bucket=LAKE, Key=there)["ETag"]
    for condition in ({"IfMatch": etag}, {"IfMatch": "*"}, {"IfMatch": etag, "IfNoneMatch": "*"}):
        assert refused(s3.put_object, Bucket=LAKE, Key=absent, Body=COMMIT, **condition)[0] == 404, condition
        assert refused(clients.s3.put_object, Bucket=LAKE, Key=f"{delta.prefix}/absent", Body=b"x", **condition)[0] == 404, condition
    for condition, status in (({"IfMatch": etag}, 403), ({"IfMatch": "*"}, 403), ({"IfMatch": '"x"'}, 412), ({"IfMatch": etag, "IfNoneMatch": "*"}, 412)):
        assert refused(s3.put_object, Bucket=LAKE, Key=there, Body=COMMIT, **condition)[0] == status, condition
    assert refused(s3.delete_object, Bucket=LAKE, Key=absent, IfMatch=etag)[0] == 404
    assert everything(clients, delta) == before


def test_no_way_around_the_judge_leads_onto_a_log_name(guarded, delta, clients):
    s3, key = guarded.s3, log(delta, 1)
    other = f"{delta.prefix}/other.json"
    s3.put_object(Bucket=LAKE, Key=other, Body=BROKEN)
    put = {"Bucket": LAKE, "Key": key}
    before = everything(clients, delta)
    assert refused(s3.copy_object, **put, CopySource={"Bucket": LAKE, "Key": other})[0] == 403
    assert refused(s3.create_multipart_upload, **put)[0] == 403
    # An upload that was begun past the gateway.
    upload = clients.s3.create_multipart_upload(**put)["UploadId"]
    assert refused(s3.upload_part, **put, UploadId=upload, PartNumber=1, Body=BROKEN)[0] == 403
    part = clients.s3.upload_part(**put, UploadId=upload, PartNumber=1, Body=BROKEN)
    done = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert refused(s3.complete_multipart_upload, **put, UploadId=upload, MultipartUpload=done)[0] == 403
    s3.abort_multipart_upload(**put, UploadId=upload)
    for options in ({}, {"IfNoneMatch": "*"}):
        status, text = refused(s3.put_object, **put, Body=BROKEN, **options)
        assert status == 403 and "FILE_MISSING" in text
    assert refused(s3.put_object, **put, Body=b"no json", IfNoneMatch="*")[0] == 403
    assert refused(s3.put_object, **put, Body=b"\xff\xfe", IfNoneMatch="*")[0] == 403
    assert refused(s3.put_object, **put, Body=b"", IfNoneMatch="*")[0] == 403
    ahead = refused(s3.put_object, Bucket=LAKE, Key=log(delta, 5), Body=COMMIT, IfNoneMatch="*")
    assert ahead[0] == 403 and "VERSION_AHEAD" in ahead[1]
    assert refused(s3.put_object, **put, Body=COMMIT, ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")[0] == 400
    for more in ({"Metadata": {"a": "b"}}, {"ServerSideEncryption": "aws:kms"}, {"StorageClass": "GLACIER"}, {"Tagging": "a=b"}):
        assert refused(s3.put_object, **put, Body=COMMIT, **more)[0] == 501, more
    address = s3.generate_presigned_url("put_object", Params=put)
    assert requests.put(address, data=BROKEN, timeout=60).status_code == 403
    form = s3.generate_presigned_post(LAKE, key)
    assert requests.post(form["url"], data=form["fields"], files={"file": BROKEN}, timeout=60).status_code == 501
    assert everything(clients, delta) == before
    # And the right way works.
    assert requests.put(address, data=COMMIT, timeout=60).status_code == 200
    assert delta.version() == 1


def lookalikes(delta):
    name = f"{1:020}.json"
    table = delta.prefix
    return [
        f"{table}//_delta_log/{name}", f"{table}/_delta_log//{name}", f"{table}/_delta_log/./{name}", f"{table}/./_delta_log/{name}",
        f"{table}/x/../_delta_log/{name}", f"/{table}/_delta_log/{name}", f"{table}/_DELTA_LOG/{name}", f"{table}/_delta_log/{name.upper()}",
        f"{table}/_delta_log%2F{name}", f"{table}/%5Fdelta_log/{name}", f"{table}/_delta_log/{name}/", f"{table}/_delta_log/{name} ",
        f"{table}\\_delta_log\\{name}", f"{table}/_delta_log/1.json", f"{table}/_delta_log/0{name}", f"{table}/_delta_log/{'9' * 20}.json",
    ]


@pytest.fixture(scope="module")
def raw(server):
    return Raw(server)


def test_other_spellings_of_log_names_are_never_written(guarded, delta, clients, raw):
    before = everything(clients, delta)
    for key in lookalikes(delta):
        path = "/" + LAKE + "/" + urllib.parse.quote(key, safe="/")
        status, answer = raw("PUT", path, COMMIT)
        assert status == 403 and b"AccessDenied" in answer, (key, answer)
        assert raw("PUT", path, COMMIT, {"if-none-match": "*"})[0] == 403, key
        assert raw("PUT", path, b"", {"x-amz-copy-source": f"/{LAKE}/{delta.prefix}/x"})[0] == 403, key
        assert raw("POST", path, b"", query="uploads=")[0] == 403, key
        assert raw("DELETE", path)[0] == 403, key
        assert raw("HEAD", path)[0] == 404, key
    answer = guarded.s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": key} for key in lookalikes(delta) if not key.endswith("/ ")]})
    assert not answer.get("Deleted"), answer
    assert everything(clients, delta) == before


def test_encodings_of_the_very_name_are_the_name(guarded, delta, clients, raw):
    version = 1
    for spelling in (
        f"/{LAKE}/{delta.prefix}/%5fdelta%5Flog/{version:020}.json",
        f"/{LAKE}/{delta.prefix}/_delta_log/{version:020}%2Ejson",
        f"/{LAKE}/{delta.prefix}%2F_delta_log%2F%30{version:019}.json",
        f"/{LAKE}%2F{delta.prefix}/_delta_log/{version:020}.json",
    ):
        status, answer = raw("PUT", spelling, BROKEN, {"if-none-match": "*"})
        assert status == 403 and b"FILE_MISSING" in answer, (spelling, answer)
        assert raw("DELETE", spelling.replace(f"{version:020}", f"{0:020}").replace(f"%30{version:019}", f"{0:020}"))[0] == 403, spelling
    assert raw("POST", f"/{LAKE}", f"<Delete><Object><Key>{log(delta, 0)}</Key></Object></Delete>".encode(), query="%64elete=")[1].count(b"AccessDenied") == 1
    escaped = log(delta, 0).replace("_", "&#95;")
    answer = raw("POST", f"/{LAKE}/", f"<Delete><Object><Key>{escaped}</Key></Object></Delete>".encode(), query="delete=")
    assert b"AccessDenied" in answer[1], answer
    assert raw("PUT", f"/{LAKE}/{delta.prefix}/_delta_log/%FF.json", COMMIT)[0] == 400
    assert delta.version() == 0


def test_logs_are_cleaned_up_after_checkpoints_only(guarded, delta, clients):
    s3 = guarded.s3
    for number in range(2, 5):
        delta.write(pa.table({"id": pa.array([number], pa.int64()), "dt": ["a"]}), mode="append")
    assert refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))[0] == 403
    # A file that only has the name of a checkpoint is none.
    fake = f"{delta.prefix}/_delta_log/{3:020}.checkpoint.parquet"
    s3.put_object(Bucket=LAKE, Key=fake, Body=b"PAR1 nothing")
    status, text = refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))
    assert status == 403 and "cannot be used" in text, text
    s3.delete_object(Bucket=LAKE, Key=fake)
    # One that tells of another state is none either.
    other = Delta(guarded, delta.prefix.removeprefix("delta/") + "-other")
    other.write(pa.table({"id": pa.array([99], pa.int64()), "dt": ["a"]}))
    for number in range(3):
        other.write(pa.table({"id": pa.array([number], pa.int64()), "dt": ["a"]}), mode="append")
    other.open().create_checkpoint()
    foreign = s3.get_object(Bucket=LAKE, Key=f"{other.prefix}/_delta_log/{3:020}.checkpoint.parquet")["Body"].read()
    s3.put_object(Bucket=LAKE, Key=fake, Body=foreign)
    status, text = refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))
    assert status == 403 and "says other" in text, text
    s3.delete_object(Bucket=LAKE, Key=fake)

    delta.open().create_checkpoint()
    assert refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 3))[0] == 403, "the checkpoint's own version stays"
    s3.delete_object(Bucket=LAKE, Key=log(delta, 0))
    answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": log(delta, version)} for version in range(4)]})
    assert sorted(one["Key"] for one in answer["Deleted"]) == [log(delta, 0), log(delta, 1), log(delta, 2)]
    assert [one["Key"] for one in answer["Errors"]] == [log(delta, 3)]
    assert delta.ids() == [1, 2, 3, 4]
    delta.write(pa.table({"id": pa.array([5], pa.int64()), "dt": ["a"]}), mode="append")
    assert delta.ids() == [1, 2, 3, 4, 5]


def test_the_checkpoint_that_a_log_begins_with_stays(guarded, delta, clients, raw):
    s3 = guarded.s3
    for number in range(2, 5):
        delta.write(pa.table({"id": pa.array([number], pa.int64()), "dt": ["a"]}), mode="append")
    delta.open().create_checkpoint()
    checkpoint = {"Bucket": LAKE, "Key": f"{delta.prefix}/_delta_log/{3:020}.checkpoint.parquet"}
    body = s3.get_object(**checkpoint)["Body"].read()
    # A batch that takes the checkpoint as well has no ground to take the log files; readers would look for the checkpoint.
    batch = [{"Key": log(delta, version)} for version in range(3)] + [{"Key": checkpoint["Key"]}]
    answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": batch})
    assert not answer.get("Deleted") and sorted(one["Key"] for one in answer["Errors"]) == sorted(one["Key"] for one in batch)
    assert "_last_checkpoint" in refused(s3.delete_object, **checkpoint)[1]
    # Once they do not, it may go as long as the log files are there.
    s3.delete_object(Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/_last_checkpoint")
    answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": batch})
    assert [one["Key"] for one in answer["Deleted"]] == [checkpoint["Key"]]
    assert sorted(one["Key"] for one in answer["Errors"]) == [log(delta, version) for version in range(3)]
    assert delta.ids() == [1, 2, 3, 4]
    # Made again, and again.
    for _ in range(2):
        delta.open().create_checkpoint()
    s3.put_object(**checkpoint, Body=body)
    s3.delete_objects(Bucket=LAKE, Delete={"Objects": batch[:3]})
    assert delta.ids() == [1, 2, 3, 4]

    before = everything(clients, delta)
    status, text = refused(s3.delete_object, **checkpoint)
    assert status == 403 and "cannot be read without it" in text, text
    answer = s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": log(delta, 3)}, {"Key": checkpoint["Key"]}]})
    assert len(answer["Errors"]) == 2 and not answer.get("Deleted")
    other = {"Bucket": LAKE, "Key": f"{delta.prefix}/other"}
    clients.s3.put_object(**other, Body=b"no checkpoint")
    for arguments in ({"Body": b"no checkpoint"}, {"Body": b"x" * len(body)}, {"Body": b""}):
        assert refused(s3.put_object, **checkpoint, **arguments)[0] == 403, arguments
    assert refused(s3.put_object, **checkpoint, Body=b"x", IfNoneMatch="*")[0] == 412
    assert refused(s3.copy_object, **checkpoint, CopySource=other)[0] == 403
    # Parameters that a store would not look at, or understand otherwise, are no way around.
    path = f"/{LAKE}/{checkpoint['Key']}"
    for query in ("foo=bar", "acl=&foo=bar", "versionId=1&x=2", "response-content-type=a"):
        assert raw("DELETE", path, query=query)[0] == 403, query
    for query in ("foo=bar", "partNumber=1", "uploadId=x", "renameObject=", "response-content-type=a"):
        assert raw("PUT", path, b"no checkpoint", query=query)[0] == 403, query
    assert raw("PUT", path, b"", {"x-amz-copy-source": f"/{LAKE}/{other['Key']}", "if-none-match": "*"})[0] == 403
    assert refused(s3.create_multipart_upload, **checkpoint)[0] == 403
    upload = clients.s3.create_multipart_upload(**checkpoint)["UploadId"]
    part = s3.upload_part(**checkpoint, UploadId=upload, PartNumber=1, Body=b"no checkpoint")
    done = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert refused(s3.complete_multipart_upload, **checkpoint, UploadId=upload, MultipartUpload=done)[0] == 403
    s3.abort_multipart_upload(**checkpoint, UploadId=upload)
    clients.s3.delete_object(**other)
    assert everything(clients, delta) == before
    # The same bytes change nothing.
    assert s3.put_object(**checkpoint, Body=body)["ETag"] == s3.head_object(**checkpoint)["ETag"]
    assert everything(clients, delta) == before
    # Ordinary work goes on: the next checkpoint takes its place.
    delta.write(pa.table({"id": pa.array([5], pa.int64()), "dt": ["a"]}), mode="append")
    delta.open().create_checkpoint()
    s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": log(delta, 3)}, {"Key": checkpoint["Key"]}]})
    assert [version for version in delta.log()] == [4]
    assert delta.ids() == [1, 2, 3, 4, 5]


def test_statistics_of_a_checkpoint_must_be_the_commits_own(guarded, delta):
    """A forged minimum would hide rows from every reader that skips files."""
    import io

    import pyarrow.parquet as pq

    s3 = guarded.s3
    delta.write(pa.table({"id": pa.array([2], pa.int64()), "dt": ["a"]}), mode="append")
    delta.open().create_checkpoint()
    checkpoint = {"Bucket": LAKE, "Key": f"{delta.prefix}/_delta_log/{1:020}.checkpoint.parquet"}
    table = pq.read_table(io.BytesIO(s3.get_object(**checkpoint)["Body"].read()))
    honest, rows = table.to_pylist(), table.to_pylist()
    for row in rows:
        if row.get("add"):
            row["add"]["stats"] = '{"numRecords":1,"minValues":{"id":1000},"maxValues":{"id":1000},"nullCount":{"id":0}}'
    forged = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), forged)
    s3.put_object(**checkpoint, Body=forged.getvalue())
    status, text = refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))
    assert status == 403 and "says other statistics" in text, text
    # Whoever reads one of two tells takes the first, or the last, or both.
    def twice(kind, **changes):
        (row,) = [row for row in honest if row.get(kind)][:1]
        return [row | {kind: row[kind] | changes}, *honest]

    for rows in (honest + [row for row in honest if row.get("add")], twice("metaData", name="evil"), twice("protocol")):
        forged = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), forged)
        s3.put_object(**checkpoint, Body=forged.getvalue())
        status, text = refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))
        assert status == 403 and "says something twice" in text, text
    # A true one is made from the log files, which are all there, so that this one may go.
    s3.delete_object(Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/_last_checkpoint")
    s3.delete_object(**checkpoint)
    delta.open().create_checkpoint()
    s3.delete_object(Bucket=LAKE, Key=log(delta, 0))
    assert delta.ids() == [1, 2]


def test_statistics_in_columns_must_be_the_commits_own(guarded, unique):
    """Readers that find `stats_parsed` or `partitionValues_parsed` do not look at the JSON."""
    import datetime
    import decimal
    import io

    import pyarrow.parquet as pq

    s3, utc = guarded.s3, datetime.timezone.utc
    delta = Delta(guarded, unique)
    rows = pa.table({
        "id": pa.array([1, 2], pa.int64()), "name": ["a", "b"], "price": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)),
        "day": pa.array([datetime.date(2026, 1, 1)] * 2), "at": pa.array([datetime.datetime(2026, 1, 1, 12, tzinfo=utc)] * 2, pa.timestamp("us", "UTC")),
        "ratio": pa.array([0.5, 1.25], pa.float64()), "p": pa.array([7, 7], pa.int32()),
    })
    for _ in range(2):
        delta.write(rows, mode="append", partition_by=["p"])
    delta.open().create_checkpoint()
    checkpoint = {"Bucket": LAKE, "Key": f"{delta.prefix}/_delta_log/{1:020}.checkpoint.parquet"}
    table = pq.read_table(io.BytesIO(s3.get_object(**checkpoint)["Body"].read()))
    at = table.schema.get_field_index("add")
    values = pa.struct({
        "id": pa.int64(), "name": pa.string(), "price": pa.decimal128(9, 2), "day": pa.date32(), "at": pa.timestamp("us", "UTC"), "ratio": pa.float64(),
    })
    parsed = pa.struct({"numRecords": pa.int64(), "minValues": values, "maxValues": values, "nullCount": pa.struct({"id": pa.int64(), "price": pa.int64()})})
    members = [field for field in table.schema.field(at).type if not field.name.endswith("_parsed")]
    members += [pa.field("stats_parsed", parsed), pa.field("partitionValues_parsed", pa.struct({"p": pa.int32()}))]
    schema = table.schema.set(at, pa.field("add", pa.struct(members)))
    low = {"id": 1, "name": "a", "price": decimal.Decimal("1.50"), "day": rows["day"][0].as_py(), "at": rows["at"][0].as_py(), "ratio": 0.5}
    high = low | {"id": 2, "name": "b", "ratio": 1.25}

    def put(stats=(), low=low, high=high, p=7):
        found = table.to_pylist()
        said = {"numRecords": 2, "minValues": low, "maxValues": high, "nullCount": {"id": 0, "price": 1}} | dict(stats)
        for row in found:
            if row.get("add"):
                row["add"] |= {"stats_parsed": said, "partitionValues_parsed": {"p": p}}
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(found, schema=schema), file)
        s3.put_object(**checkpoint, Body=file.getvalue())

    for lie in (
        {"stats": {"numRecords": 1}}, {"stats": {"nullCount": {"id": 2, "price": 1}}}, {"low": low | {"id": 2}}, {"high": high | {"name": "a"}},
        {"low": low | {"price": decimal.Decimal("1.51")}}, {"low": low | {"day": datetime.date(2026, 1, 2)}},
        {"high": high | {"at": datetime.datetime(2026, 1, 1, 11, tzinfo=utc)}}, {"high": high | {"ratio": 1.0}}, {"p": 8}, {"p": None},
    ):
        put(**lie)
        status, text = refused(s3.delete_object, Bucket=LAKE, Key=log(delta, 0))
        assert status == 403 and "says other parsed" in text, (lie, text)
    put()
    s3.delete_object(Bucket=LAKE, Key=log(delta, 0))
    assert delta.ids() == [1, 1, 2, 2]


def test_messages_can_be_read_whatever_they_repeat(guarded, delta, raw):
    import xml.etree.ElementTree as ET

    put = {"Bucket": LAKE, "Key": log(delta, 1)}
    for path, told in (("a\u0001b", "a\\u{1}b"), ("a\u0000b", "a\\u{0}b"), ("a\u001b[31m", "a\\u{1b}[31m"), ("a<&>\"ü", "a<&>\"ü"), ("y" * 9000, "yyy")):
        add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        status, text = refused(guarded.s3.put_object, **put, Body=json.dumps({"add": add}).encode())
        assert status == 403 and told in text and "Lakewarden refused this commit" in text, (path[:20], text)
        assert len(text.encode()) <= 2048 and "new id" not in text and ".. " not in text, text
    add = {"path": "nowhere.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    text = refused(guarded.s3.put_object, **put, Body=json.dumps({"add": add}).encode())[1]
    assert "(file nowhere.parquet" in text and "FILE_MISSING" in text, text
    for odd in ("%01", "%1B", "%7F", "%0D"):
        status, answer = raw("PUT", f"/{LAKE}/{delta.prefix}/_delta_log/{odd}{1:020}.json", COMMIT)
        message = ET.fromstring(answer.partition(b"\r\n\r\n")[2]).findtext("Message")
        assert status == 403 and "\\u{" in message, message
    status, text = refused(guarded.s3.put_object, **put, Body=b" " * (33 << 20))
    assert status == 400 and delta.prefix in text and "several commits" in text, text


def test_batches_take_the_keys_that_they_name(guarded, delta, clients, raw):
    s3 = guarded.s3
    keys = [f"{delta.prefix}/odd/{name}" for name in ("cr\rx", "crlf\r\nx", "nel\u0085x", "ls\u2028x", "tab\tx", " x ", "a&b<c>", "]]>", "é")]
    for key in keys:
        clients.s3.put_object(Bucket=LAKE, Key=key, Body=b"x")
    def escaped(key):
        key = key.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return "".join(f"&#{ord(char)};" if char in "\r\n\t\u0085\u2028" else char for char in key)
    objects = "".join(f"<Object><Key>{escaped(key)}</Key></Object>" for key in keys)
    answer = raw("POST", f"/{LAKE}", f"<Delete>{objects}</Delete>".encode(), query="delete=")
    assert answer[0] == 200 and b"<Error>" not in answer[1], answer
    left = clients.s3.list_objects_v2(Bucket=LAKE, Prefix=f"{delta.prefix}/odd/", EncodingType="url").get("Contents", [])
    assert left == []
    # Sections are text like any other, for log files and for others.
    clients.s3.put_object(Bucket=LAKE, Key=f"{delta.prefix}/odd/a&b", Body=b"x")
    clients.s3.put_object(Bucket=LAKE, Key=f"{delta.prefix}/odd/a", Body=b"x")
    cut = f"<Object><Key>{delta.prefix}/odd/a<![CDATA[&b]]></Key></Object><Object><Key><![CDATA[{log(delta, 0)}]]></Key></Object>"
    answer = raw("POST", f"/{LAKE}", f"<Delete>{cut}</Delete>".encode(), query="delete=")
    assert answer[0] == 200 and answer[1].count(b"AccessDenied") == 1, answer
    left = clients.s3.list_objects_v2(Bucket=LAKE, Prefix=f"{delta.prefix}/odd/")["Contents"]
    assert [one["Key"] for one in left] == [f"{delta.prefix}/odd/a"]
    assert delta.version() == 0


def test_batches_with_keys_that_no_answer_can_name_delete_nothing(guarded, delta, clients, raw):
    """S3 takes them neither (MalformedXML); by themselves these keys can be deleted."""
    import xml.etree.ElementTree as ET

    keep, odd = f"{delta.prefix}/odd/keep", f"{delta.prefix}/odd/a\u0001b"
    for key in (keep, odd):
        clients.s3.put_object(Bucket=LAKE, Key=key, Body=b"x")
    for name in ("&#1;", "&#x1;", "\u0001", "&#x0;", "&#xFFFE;", "\uffff"):
        for table in (f"{delta.prefix}/odd/a{name}b", f"{delta.prefix}/_delta_log/{name}{0:020}.json"):
            objects = f"<Object><Key>{keep}</Key></Object><Object><Key>{table}</Key></Object>"
            status, answer = raw("POST", f"/{LAKE}", f"<Delete>{objects}</Delete>".encode(), query="delete=")
            error = ET.fromstring(answer.partition(b"\r\n\r\n")[2])
            assert (status, error.findtext("Code")) == (400, "MalformedXML"), answer
    assert clients.s3.head_object(Bucket=LAKE, Key=keep) and clients.s3.head_object(Bucket=LAKE, Key=odd)
    guarded.s3.delete_object(Bucket=LAKE, Key=odd)
    assert refused(clients.s3.head_object, Bucket=LAKE, Key=odd)[0] == 404
    # An answer that mixes what was deleted and what was not is XML whatever the keys hold.
    kept = log(delta, 0)
    objects = f"<Object><Key>{keep}&amp;&#13;&#x85;</Key></Object><Object><Key>{kept}</Key></Object>"
    status, answer = raw("POST", f"/{LAKE}", f"<Delete>{objects}</Delete>".encode(), query="delete=")
    root = ET.fromstring(answer.partition(b"\r\n\r\n")[2])
    keys = {kind: [one.findtext("{*}Key") for one in root.findall(f"{{*}}{kind}")] for kind in ("Deleted", "Error")}
    assert status == 200 and keys["Error"] == [kept] and len(keys["Deleted"]) == 1, answer


def test_cleanups_at_once_leave_a_table_that_can_be_read(guarded, unique, clients):
    """A checkpoint and the log files that it makes superfluous, deleted at the same moment: one of them stays."""
    import concurrent.futures

    s3, refusals = guarded.s3, {"log": 0, "checkpoint": 0}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for attempt in range(12):
            delta = Delta(guarded, f"{unique}-{attempt}")
            for number in range(4):
                delta.write(pa.table({"id": pa.array([number], pa.int64()), "dt": ["a"]}), mode="append" if number else "error")
            delta.open().create_checkpoint()
            s3.delete_object(Bucket=LAKE, Key=f"{delta.prefix}/_delta_log/_last_checkpoint")
            checkpoint = f"{delta.prefix}/_delta_log/{3:020}.checkpoint.parquet"
            if attempt % 2:
                whole = [pool.submit(s3.delete_object, Bucket=LAKE, Key=log(delta, version)) for version in range(2)]
            else:
                batch = {"Objects": [{"Key": log(delta, version)} for version in range(3)]}
                whole = [pool.submit(s3.delete_objects, Bucket=LAKE, Delete=batch)]
            if attempt % 3 == 2:
                # Somebody writes something else over it.
                other = pool.submit(s3.put_object, Bucket=LAKE, Key=checkpoint, Body=b"no checkpoint")
            else:
                other = pool.submit(s3.delete_object, Bucket=LAKE, Key=checkpoint)
            answers = [one.result() for one in whole if one.exception() is None]
            refusals["log"] += len(whole) - len(answers) + sum(bool(answer.get("Errors")) for answer in answers)
            refusals["checkpoint"] += other.exception() is not None
            logs = set(delta.log())
            if logs >= set(range(4)):
                clients.s3.delete_object(Bucket=LAKE, Key=checkpoint)
            assert delta.ids() == [0, 1, 2, 3], (attempt, logs)
    # One of the two was told no each time.
    assert refusals["log"] + refusals["checkpoint"] >= 12, refusals


def test_of_two_at_once_one_has_the_version(guarded, delta):
    import concurrent.futures

    def work(number):
        body = json.dumps({"commitInfo": {"operation": "X"}}) + "\n" + json.dumps({"txn": {"appId": f"a{number}", "version": 1}})
        try:
            guarded.s3.put_object(Bucket=LAKE, Key=log(delta, 1), Body=body.encode(), IfNoneMatch="*")
            return number
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412, error
            return None

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        won = [number for number in pool.map(work, range(6)) if number is not None]
    assert len(won) == 1
    body = guarded.s3.get_object(Bucket=LAKE, Key=log(delta, 1))["Body"].read()
    assert f'"a{won[0]}"'.encode() in body
    # Who was told that it is there is told that it is taken.
    assert refused(guarded.s3.put_object, Bucket=LAKE, Key=log(delta, 1), Body=body, IfNoneMatch="*")[0] == 412
