"""The template passes its checks, and each check notices what it is there for."""

import copy
import pathlib

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
