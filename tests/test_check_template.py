"""The template passes its checks, and each check notices what it is there for."""

import copy
import pathlib
import re

import check_template as checker
import pytest

TEMPLATE = checker.load(checker.ROOT / "template.yaml")


def test_the_template_is_fine():
    assert checker.complaints(TEMPLATE) == []


def resource(template, name):
    return template["Resources"][name]["Properties"]


def first_statement(template, name):
    return resource(template, name)["Policies"][0]["PolicyDocument"]["Statement"][1]


def drop_function(template):
    del template["Resources"]["CatalogWorker"]


def foreign_binary(template):
    template["Resources"]["CatalogApi"]["Metadata"]["BuildProperties"]["Binary"] = "nothing"


def policy_template(template):
    resource(template, "CatalogApi")["Policies"] = [{"DynamoDBCrudPolicy": {}}]


def no_log_group(template):
    del resource(template, "CatalogApi")["LoggingConfig"]


def no_retention(template):
    del resource(template, "CatalogApiLogs")["RetentionInDays"]


def wildcard_action(template):
    first_statement(template, "CatalogApiRole")["Action"] = "dynamodb:*"


def every_resource(template):
    first_statement(template, "CatalogApiRole")["Resource"] = "*"


def shared_role(template):
    resource(template, "CommitApi")["Role"] = resource(template, "CatalogApi")["Role"]


def no_dead_letters(template):
    del resource(template, "SweepsQueue")["RedrivePolicy"]


def no_queue_alarm(template):
    del template["Resources"]["SweepsDeadLettersAlarm"]


def short_visibility(template):
    resource(template, "CommitsQueue")["VisibilityTimeout"] = 60


def whole_batch(template):
    del resource(template, "CommitValidator")["Events"]["Staged"]["Properties"]["FunctionResponseTypes"]


def no_error_alarm(template):
    del template["Resources"]["CatalogApiErrorsAlarm"]


def open_api(template):
    del resource(template, "Api")["Auth"]["DefaultAuthorizer"]


def open_route(template):
    resource(template, "CatalogApi")["Events"]["Rest"]["Properties"]["Auth"] = {"Authorizer": "NONE"}


def open_unity_route(template):
    resource(template, "UnityRoute")["AuthorizationType"] = "NONE"


def any_token(template):
    del resource(template, "UnityAuthorizer")["JwtConfiguration"]["Audience"]


def glue_route(template):
    resource(template, "CatalogApi")["Events"]["Rest"]["Properties"]["Path"] = "/"


def table_goes_with_the_stack(template):
    del template["Resources"]["CommitsTable"]["DeletionPolicy"]


def no_recovery(template):
    del resource(template, "CommitsTable")["PointInTimeRecoverySpecification"]


BREAKS = {
    drop_function: "functions/catalog-worker is not in the template",
    foreign_binary: "builds `nothing`",
    policy_template: "policies belong into its role",
    no_log_group: "names no log group",
    no_retention: "no RetentionInDays",
    wildcard_action: "wildcard action",
    every_resource: "every resource",
    shared_role: "shares CatalogApiRole",
    no_dead_letters: "SweepsQueue: has no dead-letter queue",
    no_queue_alarm: "SweepsDeadLetters: no alarm",
    short_visibility: "CommitsQueue: VisibilityTimeout",
    whole_batch: "ReportBatchItemFailures",
    no_error_alarm: "CatalogApi: no alarm on Errors",
    open_api: "Api: routes are open",
    open_route: "is open",
    glue_route: "outside /v1/",
    open_unity_route: "`ANY /api/2.1/unity-catalog/{proxy+}` is open",
    any_token: "takes tokens of anybody",
    table_goes_with_the_stack: "would be deleted with the stack",
    no_recovery: "no point-in-time recovery",
}


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
def test_what_is_missing_is_noticed(spoil):
    template = copy.deepcopy(TEMPLATE)
    spoil(template)
    assert any(BREAKS[spoil] in complaint for complaint in checker.complaints(template))


def test_a_setting_that_nothing_reads_is_noticed(tmp_path):
    source = tmp_path / "shared" / "aws" / "src"
    source.mkdir(parents=True)
    pathlib.Path(source, "settings.rs").write_text('const A: &str = "LAKEWARDEN_TABLE_PREFIX"; "LAKEWARDEN_NEW"')
    found = list(checker.check_settings(TEMPLATE, tmp_path))
    assert "LAKEWARDEN_NEW is read in shared/aws but the template does not give it" in found
    assert any(complaint.startswith("LAKEWARDEN_REPORTS is given") for complaint in found)


# What the template says once its parameters are known, as far as resources of policies need it.


def evaluated(value, parameters):
    """A value with the functions in it carried out."""
    if isinstance(value, list):
        return [evaluated(member, parameters) for member in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return parameters[value["Ref"]]
    if set(value) == {"Fn::Join"}:
        separator, parts = value["Fn::Join"]
        return separator.join(evaluated(parts, parameters))
    if set(value) == {"Fn::Split"}:
        separator, text = value["Fn::Split"]
        return evaluated(text, parameters).split(separator)
    if set(value) == {"Fn::Sub"} and isinstance(value["Fn::Sub"], list):
        text, names = value["Fn::Sub"]
        names = {name: evaluated(of, parameters) for name, of in names.items()}
        return re.sub(r"\$\{(\w+)\}", lambda found: names[found[1]], text)
    raise AssertionError(value)


def holds(pattern, text):
    """Patterns of policies: `*` is any text, slashes included, and `?` one character."""
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(char) or re.escape(char) for char in pattern), text, re.DOTALL) is not None


def denied(statement, places, key, *, action="s3:PutObject", principal="arn:aws:iam::1:role/writer"):
    """Whether the bucket policy denies a call, with GuardedLogs set to `places`."""
    roles = [f"arn:aws:iam::1:role/{role['Fn::GetAtt'][0]}" for role in statement["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]]
    patterns = evaluated(statement["Resource"], {"GuardedLogs": places})
    is_meant = action in statement["Action"] and principal not in roles
    return is_meant and any(holds(pattern, f"arn:aws:s3:::{key}") for pattern in patterns)


@pytest.fixture(scope="module")
def back_door():
    (statement,) = resource(TEMPLATE, "GuardedLogsPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
    assert set(statement["Condition"]) == {"ArnNotEquals"}
    return statement


UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
# Every name of digits, whatever its length: Delta's readers take them all.
LOG_NAMES = [
    *(f"{digit}" * length for digit in (0, 1, 9) for length in range(1, 80)),
    *("0" * zeros + f"{digit}" for digit in (2, 3, 4, 5, 6, 7, 8) for zeros in (0, 1, 18, 19, 20, 21, 50)),
    *("1" + "0" * zeros for zeros in (1, 18, 19, 20, 21, 50)),
    f"{2**63 - 1:020}", f"{12:020}", "00000000000000000000", "99999999999999999999",
]
OTHER_NAMES = [
    f"{4:020}.checkpoint.parquet",
    f"{4:020}.checkpoint.{1:010}.{2:010}.parquet",
    f"{4:020}.checkpoint.{UUID}.json",
    f"{4:020}.checkpoint.{UUID}.parquet",
    f"{2**63 - 1:020}.checkpoint.{UUID}.json",
    f"{0:020}.{4:020}.compacted.json",
    f"{4:020}.crc",
    "_last_checkpoint",
    f"_staged_commits/{4:020}.{UUID}.json",
    f"_staged_commits/{4:020}.{UUID}.verdict.json",
    f"_commits/{4:020}.{UUID}.json",
    f"_sidecars/{UUID}.parquet",
    f".tmp/{4:020}.json.{UUID}",
    f".tmp/{4:020}.{UUID}.json",
    f".{4:020}.json.crc",
    f"{4:020}.json.tmp",
]


def test_the_back_door_is_closed_for_every_name_of_a_log_file(back_door):
    for table in ("gold/orders/", "gold/", "gold/a/b/"):
        for name in LOG_NAMES:
            assert denied(back_door, ["lake/gold/"], f"lake/{table}_delta_log/{name}.json"), (table, name)
    assert denied(back_door, ["lake/"], f"lake/_delta_log/{0:020}.json"), "a table that is the whole bucket"
    assert denied(back_door, ["lake/gold/"], f"lake/gold/t/_delta_log/{7:020}.json", action="s3:ReplicateObject")


def test_what_else_lies_in_a_log_stays_open(back_door):
    for name in OTHER_NAMES:
        assert not denied(back_door, ["lake/gold/"], f"lake/gold/orders/_delta_log/{name}"), name
    for key in ("lake/gold/orders/part-0.parquet", "lake/gold/orders/dt=1/0.json", f"lake/silver/t/_delta_log/{0:020}.json"):
        assert not denied(back_door, ["lake/gold/"], key), key
    # Log cleanup and reading go on.
    for action in ("s3:DeleteObject", "s3:GetObject", "s3:ListBucket"):
        assert not denied(back_door, ["lake/"], f"lake/t/_delta_log/{0:020}.json", action=action), action


def test_several_places_can_be_closed(back_door):
    places = ["lake/gold/", "lake/raw/"]
    for place, is_closed in (("gold", True), ("raw", True), ("silver", False), ("golden", False)):
        assert denied(back_door, places, f"lake/{place}/t/_delta_log/{0:020}.json") == is_closed, place
        assert denied(back_door, places, f"lake/{place}/t/_delta_log/7.json") == is_closed, place


def test_only_the_functions_that_publish_are_exempt(back_door):
    key = f"lake/gold/t/_delta_log/{0:020}.json"
    for role, is_closed in (("CommitApiRole", False), ("CommitValidatorRole", False), ("CatalogApiRole", True), ("SweepPlannerRole", True)):
        assert denied(back_door, ["lake/"], key, principal=f"arn:aws:iam::1:role/{role}") == is_closed, role
    assert denied(back_door, ["lake/"], key, principal="arn:aws:iam::1:root")
    # And exactly those may put what is published.
    roles = checker.of_type(TEMPLATE, "AWS::IAM::Role")
    publishers = {
        name for name, role in roles.items() for statement in checker.statements(role)
        if "s3:PutObject" in statement["Action"] and reaches(statement, key, ["lake"]) and not restores(statement)
    }
    assert publishers == {"CommitApiRole", "CommitValidatorRole"}


def test_what_is_restored_is_copied_from_the_quarantine_alone():
    roles = checker.of_type(TEMPLATE, "AWS::IAM::Role")
    found = {}
    for name, role in roles.items():
        for statement in filter(restores, checker.statements(role)):
            assert sorted(statement["Action"]) == ["s3:PutObject", "s3:PutObjectTagging"], name
            (test,) = statement["Condition"].values()
            (sources,) = test.values()
            sources = evaluated(sources, {"LakeBuckets": ["lake", "pond"]})
            assert sources == ["lake/lakewarden-quarantine/*", "pond/lakewarden-quarantine/*"], name
            found[name] = found.get(name, 0) + 1
    assert found == {"CommitApiRole": 1, "CommitValidatorRole": 1, "OrphanSweeperRole": 1}


def restores(statement):
    """Whether a statement allows nothing but copies of certain objects: nothing can be published by it."""
    return "s3:x-amz-copy-source" in statement.get("Condition", {}).get("StringLike", {})


def reaches(statement, key, buckets):
    """Whether a statement of a role holds an object of the lake."""
    try:
        patterns = evaluated(statement["Resource"], {"LakeBuckets": buckets})
    except (AssertionError, KeyError):
        return False  # another kind of resource
    return any(holds(pattern, f"arn:aws:s3:::{key}") for pattern in checker.as_list(patterns))


def test_tables_that_are_a_whole_bucket_are_served_like_others():
    roles = checker.of_type(TEMPLATE, "AWS::IAM::Role")
    for action, name in (
        ("s3:PutObject", f"{0:020}.json"),
        ("s3:PutObject", f"_staged_commits/{0:020}.{UUID}.json"),
        ("s3:DeleteObject", f"_staged_commits/{0:020}.{UUID}.json"),
        ("s3:DeleteObject", f".tmp/{0:020}.json"),
        ("s3:DeleteObject", f"{0:020}.crc"),
        ("s3:GetObject", f"{0:020}.json"),
    ):
        def able(key):
            return {
                role for role, body in roles.items() for statement in checker.statements(body)
                if action in statement.get("Action", []) and reaches(statement, key, ["lake", "other"])
            }

        below, whole = able(f"other/t/_delta_log/{name}"), able(f"other/_delta_log/{name}")
        assert below == whole and below, (action, name)
        assert not able(f"foreign/_delta_log/{name}"), (action, name)


def test_events_of_tables_that_are_a_whole_bucket_are_heard():
    for rule, name in (("StagedCommitsRule", f"_staged_commits/{0:020}.{UUID}.json"), ("LogsRule", f"{0:020}.json"), ("LogsRule", f"{0:020}.crc")):
        patterns = [one["wildcard"] for one in resource(TEMPLATE, rule)["EventPattern"]["detail"]["object"]["key"]]
        for table in ("t/", "a/b/", ""):
            assert any(holds(pattern, f"{table}_delta_log/{name}") for pattern in patterns), (rule, table)
