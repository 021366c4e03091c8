"""Spark's S3DynamoDBLogStore, step by step.

One `LogStore` is one Spark session on one table. A write is a row of steps that a test carries out one by one, between the
steps of others, or leaves off in the middle, as a process that dies does.
"""

import time
import uuid

from botocore.exceptions import ClientError

from conftest import LAKE

EXPIRES_AFTER_S = 24 * 60 * 60
REPAIR_TRIES = 3


class VersionTaken(Exception):
    """Somebody else has the version: the session reads the table again and takes the next one."""


class CorruptLockTable(Exception):
    """Entry and log contradict each other; Spark does not go on."""


def file_name(version):
    return f"{version:020}.json"


class LogStore:
    def __init__(self, clients, prefix, lock_table, scheme="s3a", path=None):
        self.s3, self.dynamodb = clients.s3, clients.dynamodb
        self.log = f"{prefix}/_delta_log/"
        # Hadoop writes the path as it is; deltalake as it stands in a URL.
        self.path = f"{scheme}://{LAKE}/{path or prefix}"
        self.lock_table = lock_table

    # The objects

    def read(self, name):
        """The bytes of a file of the log, or None."""
        try:
            return self.s3.get_object(Bucket=LAKE, Key=self.log + name)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None

    def exists(self, name):
        try:
            self.s3.head_object(Bucket=LAKE, Key=self.log + name)
            return True
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            return False

    def copy(self, source, target):
        """False if the target exists; it is not overwritten."""
        body = self.read(source)
        if body is None:
            raise FileNotFoundError(source)
        try:
            self.s3.put_object(Bucket=LAKE, Key=self.log + target, Body=body, IfNoneMatch="*")
            return True
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                raise
            return False

    # The entries

    def key(self, version):
        return {"tablePath": {"S": self.path}, "fileName": {"S": file_name(version)}}

    def entry(self, version):
        found = self.dynamodb.get_item(TableName=self.lock_table, Key=self.key(version), ConsistentRead=True)
        return plain(found.get("Item"))

    def entries(self):
        """All of the table, oldest first."""
        pages = self.dynamodb.get_paginator("query").paginate(**self._query())
        return [plain(item) for page in pages for item in page["Items"]]

    def newest(self):
        found = self.dynamodb.query(**self._query(), ScanIndexForward=False, Limit=1)["Items"]
        return plain(found[0]) if found else None

    def _query(self):
        return {
            "TableName": self.lock_table,
            "ConsistentRead": True,
            "KeyConditionExpression": "tablePath = :path",
            "ExpressionAttributeValues": {":path": {"S": self.path}},
        }

    def put_if_absent(self, version, temp_path):
        """False if there is an entry."""
        item = self.key(version) | {"tempPath": {"S": temp_path}, "complete": {"S": "false"}}
        try:
            self.dynamodb.put_item(TableName=self.lock_table, Item=item, ConditionExpression="attribute_not_exists(fileName)")
            return True
        except self.dynamodb.exceptions.ConditionalCheckFailedException:
            return False

    def put_complete(self, version, temp_path):
        expires = int(time.time()) + EXPIRES_AFTER_S
        item = self.key(version) | {"tempPath": {"S": temp_path}, "complete": {"S": "true"}, "expireTime": {"N": str(expires)}}
        self.dynamodb.put_item(TableName=self.lock_table, Item=item)

    def repair(self, entry):
        """Finishes what another session left."""
        version = int(entry["fileName"].removesuffix(".json"))
        for _ in range(REPAIR_TRIES):
            try:
                if not self.exists(entry["fileName"]):
                    self.copy(entry["tempPath"], entry["fileName"])
                self.put_complete(version, entry["tempPath"])
                return
            except FileNotFoundError as missing:
                failed = missing
        raise failed

    # What a session does

    def latest(self):
        """The newest version, as a listing finds it: the newest entry is repaired before."""
        newest = self.newest()
        if newest is not None and newest["complete"] == "false":
            self.repair(newest)
        return latest_version(self.s3, self.log)

    def write(self, version, body):
        return Write(self, version, body)

    def append(self, body):
        """A whole blind append, tried again at the next version as long as others are faster; the version."""
        while True:
            write = self.write(self.latest() + 1, body)
            try:
                return write.run()
            except VersionTaken:
                continue


class Write:
    """One write of one version that must not exist. Spark's commit point is the step `claim`: whatever fails afterwards ends
    the write and is swallowed, since the next session repairs it."""

    ENDS = object()
    STEPS = ("check_absent", "settle_previous", "write_temp", "claim", "copy", "complete")

    def __init__(self, store, version, body):
        self.store, self.version, self.body = store, version, body
        self.temp_path = f".tmp/{file_name(version)}.{uuid.uuid4()}"
        self.done = 0

    @property
    def is_acknowledged(self):
        """Whether the session has told its user that the commit was made, or is about to."""
        return self.done > self.STEPS.index("claim")

    @property
    def is_finished(self):
        return self.done == len(self.STEPS)

    def step(self):
        """Carries out the next step."""
        if getattr(self, self.STEPS[self.done])() is Write.ENDS:
            self.done = len(self.STEPS)
        else:
            self.done += 1

    def run(self, through="complete"):
        """The steps up to this one; the version."""
        while self.done <= self.STEPS.index(through):
            self.step()
        return self.version

    def check_absent(self):
        if self.store.exists(file_name(self.version)):
            raise VersionTaken(self.version)

    def settle_previous(self):
        if self.version == 0:
            entry = self.store.entry(0)
            if entry is not None and entry["complete"] == "true":
                raise CorruptLockTable(f"entry 0 of {self.store.path} is complete and its file is missing")
            return
        previous = self.version - 1
        entry = self.store.entry(previous)
        if entry is not None and entry["complete"] == "false":
            self.store.repair(entry)
        elif not self.store.exists(file_name(previous)):
            raise CorruptLockTable(f"version {previous} of {self.store.path} is missing")

    def write_temp(self):
        self.store.s3.put_object(Bucket=LAKE, Key=self.store.log + self.temp_path, Body=self.body)

    def claim(self):
        if not self.store.put_if_absent(self.version, self.temp_path):
            raise VersionTaken(self.version)

    def copy(self):
        """A repairer may have been here; or a writer that knows of no entries, and then the commit is lost. Spark does not look."""
        try:
            copied = self.store.copy(self.temp_path, file_name(self.version))
        except FileNotFoundError:
            copied = False
        return None if copied else Write.ENDS

    def complete(self):
        self.store.put_complete(self.version, self.temp_path)


def plain(item):
    """An item without its types; None stays None."""
    return item and {name: next(iter(value.values())) for name, value in item.items()}


def versions(s3, log):
    """The versions that the log has as JSON, ascending."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=LAKE, Prefix=log + "0")
    names = [found["Key"].removeprefix(log) for page in pages for found in page.get("Contents", [])]
    return sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))


def latest_version(s3, log):
    found = versions(s3, log)
    return found[-1] if found else -1

