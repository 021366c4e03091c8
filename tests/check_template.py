#!/usr/bin/env python3
"""Checks template.yaml against the repository: what `sam validate` and `cfn-lint` cannot know.

usage: check_template.py [TEMPLATE]      Prints one line for each thing that is wrong; exit code 1 if there is any.
"""

import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTING = re.compile(r'"(LAKEWARDEN_[A-Z_]+)"')


class Loader(yaml.SafeLoader):
    """Reads the short forms of CloudFormation's functions as the long ones."""


def read_function(loader, suffix, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".")
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", read_function)


def load(path):
    return yaml.load(pathlib.Path(path).read_text(encoding="utf-8"), Loader)


def of_type(template, kind):
    return {name: body for name, body in template["Resources"].items() if body["Type"] == kind}


def target(value):
    """The logical id that a Ref, GetAtt or simple Sub points at."""
    if isinstance(value, dict):
        if "Ref" in value:
            return value["Ref"]
        if "Fn::GetAtt" in value:
            return value["Fn::GetAtt"][0]
    return None


def as_list(value):
    return value if isinstance(value, list) else [value]


def functions(template):
    return of_type(template, "AWS::Serverless::Function")


def check_functions_are_the_crates(template, root):
    built = {body["Metadata"]["BuildProperties"]["Binary"]: name for name, body in functions(template).items()}
    crates = {path.parent.name for path in (root / "functions").glob("*/Cargo.toml")}
    for crate in sorted(crates - set(built)):
        yield f"functions/{crate} is not in the template"
    for binary in sorted(set(built) - crates):
        yield f"{built[binary]} builds `{binary}`, which is no crate below functions/"
    for name, body in functions(template).items():
        if body["Metadata"].get("BuildMethod") != "rust-cargolambda":
            yield f"{name}: BuildMethod should be rust-cargolambda"
        if "Policies" in body["Properties"]:
            yield f"{name}: policies belong into its role, action by action"


def check_logs(template, _root):
    groups = of_type(template, "AWS::Logs::LogGroup")
    for name, body in groups.items():
        if "RetentionInDays" not in body["Properties"]:
            yield f"{name}: no RetentionInDays"
    for name, body in functions(template).items():
        if target(body["Properties"].get("LoggingConfig", {}).get("LogGroup")) not in groups:
            yield f"{name}: LoggingConfig names no log group of this template"


def statements(role):
    for policy in role["Properties"].get("Policies", []):
        yield from as_list(policy["PolicyDocument"]["Statement"])


def check_roles(template, _root):
    roles = of_type(template, "AWS::IAM::Role")
    used = [target(body["Properties"].get("Role")) for body in functions(template).values()]
    for name, body in functions(template).items():
        role = target(body["Properties"].get("Role"))
        if role not in roles:
            yield f"{name}: has no role of this template"
        elif used.count(role) > 1:
            yield f"{name}: shares {role} with another function"
    for name, role in roles.items():
        if "ManagedPolicyArns" in role["Properties"]:
            yield f"{name}: managed policies allow more than is listed here"
        for statement in statements(role):
            sid = statement.get("Sid", "(a statement without Sid)")
            if "NotAction" in statement or "NotResource" in statement:
                yield f"{name}.{sid}: says what is not allowed instead of what is"
            for action in as_list(statement.get("Action", [])):
                if "*" in action:
                    yield f"{name}.{sid}: wildcard action `{action}`"
            if "*" in as_list(statement.get("Resource", "*")):
                yield f"{name}.{sid}: every resource"


def check_queues(template, _root):
    queues = of_type(template, "AWS::SQS::Queue")
    watched = {
        target(dimension["Value"])
        for alarm in of_type(template, "AWS::CloudWatch::Alarm").values()
        if alarm["Properties"]["MetricName"] == "ApproximateNumberOfMessagesVisible"
        for dimension in alarm["Properties"].get("Dimensions", [])
    }
    dead_letters = set()
    sources = {}
    for name, body in queues.items():
        policy = body["Properties"].get("RedrivePolicy")
        if policy:
            dead_letters.add(target(policy["deadLetterTargetArn"]))
            sources[name] = body["Properties"]
    for body in functions(template).values():
        destination = body["Properties"].get("EventInvokeConfig", {}).get("DestinationConfig", {}).get("OnFailure", {})
        dead_letters.add(target(destination.get("Destination")))
    for name in sorted(set(queues) - set(sources) - dead_letters):
        yield f"{name}: has no dead-letter queue and is none"
    for name in sorted(dead_letters - {None}):
        if name not in watched:
            yield f"{name}: no alarm on its visible messages"
    for function, event in events_of(template, "SQS"):
        queue = target(event["Queue"])
        name, timeout_s = function
        if queue not in sources:
            yield f"{name}: reads {queue}, which has no dead-letter queue"
        elif sources[queue].get("VisibilityTimeout", 30) < 6 * timeout_s:
            yield f"{queue}: VisibilityTimeout below six times the {timeout_s} s of {name}"
        if event.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
            yield f"{name}: a bad message would repeat its whole batch (ReportBatchItemFailures is missing)"


def events_of(template, kind):
    for name, body in functions(template).items():
        for event in body["Properties"].get("Events", {}).values():
            if event["Type"] == kind:
                yield (name, body["Properties"].get("Timeout", 3)), event["Properties"]


def check_alarms(template, _root):
    seen = {
        (alarm["Properties"]["MetricName"], target(dimension["Value"]))
        for alarm in of_type(template, "AWS::CloudWatch::Alarm").values()
        for dimension in alarm["Properties"].get("Dimensions", [])
    }
    for name in functions(template):
        for metric in ("Errors", "Throttles"):
            if (metric, name) not in seen:
                yield f"{name}: no alarm on {metric}"


def check_routes(template, _root):
    apis = of_type(template, "AWS::Serverless::HttpApi")
    for name, body in apis.items():
        auth = body["Properties"].get("Auth", {})
        if not (auth.get("EnableIamAuthorizer") and auth.get("DefaultAuthorizer") == "AWS_IAM"):
            yield f"{name}: routes are open unless they say otherwise"
    for (name, _timeout), event in events_of(template, "HttpApi"):
        path = event.get("Path", "")
        if target(event.get("ApiId")) not in apis:
            yield f"{name}: `{path}` hangs on an implicit API without authorizer"
        if event.get("Auth", {}).get("Authorizer", "AWS_IAM") != "AWS_IAM":
            yield f"{name}: `{path}` is open"
        if not path.startswith("/v1/"):
            yield f"{name}: `{path}` is outside /v1/ (POST / stays closed until `glue` signatures are verified)"
        if event.get("PayloadFormatVersion") != "2.0":
            yield f"{name}: `{path}` has another payload format than 2.0"


def check_routes_by_hand(template, _root):
    """Routes outside SAM's own: each with an authorizer of its API."""
    authorizers = of_type(template, "AWS::ApiGatewayV2::Authorizer")
    for name, body in of_type(template, "AWS::ApiGatewayV2::Route").items():
        properties = body["Properties"]
        kind, authorizer = properties.get("AuthorizationType"), target(properties.get("AuthorizerId"))
        if kind != "AWS_IAM" and (kind not in ("JWT", "CUSTOM") or authorizer not in authorizers):
            yield f"{name}: `{properties.get('RouteKey')}` is open"
        elif kind != "AWS_IAM" and authorizers[authorizer]["Properties"]["ApiId"] != properties["ApiId"]:
            yield f"{name}: {authorizer} belongs to another API"
    for name, body in authorizers.items():
        settings = body["Properties"].get("JwtConfiguration", {})
        if body["Properties"]["AuthorizerType"] == "JWT" and not (settings.get("Issuer") and settings.get("Audience")):
            yield f"{name}: takes tokens of anybody, or for anything"


def check_tables(template, _root):
    for name, body in of_type(template, "AWS::DynamoDB::Table").items():
        properties = body["Properties"]
        if body.get("DeletionPolicy") != "Retain" or body.get("UpdateReplacePolicy") != "Retain":
            yield f"{name}: would be deleted with the stack"
        if not properties.get("DeletionProtectionEnabled"):
            yield f"{name}: no deletion protection"
        if not properties.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled"):
            yield f"{name}: no point-in-time recovery"
        if not properties.get("TimeToLiveSpecification", {}).get("Enabled"):
            yield f"{name}: no time to live"
        if properties.get("BillingMode") != "PAY_PER_REQUEST":
            yield f"{name}: is not on demand"


def check_settings(template, root):
    given = set(template["Globals"]["Function"]["Environment"]["Variables"])
    read = set()
    for path in (root / "shared" / "aws" / "src").rglob("*.rs"):
        read |= set(SETTING.findall(path.read_text(encoding="utf-8")))
    # In Lambda the account comes from the function's ARN.
    optional = {"LAKEWARDEN_ACCOUNT_ID"}
    if read:
        for name in sorted(given - read):
            yield f"{name} is given to the functions but nothing in shared/aws reads it"
        for name in sorted(read - given - optional):
            yield f"{name} is read in shared/aws but the template does not give it"


CHECKS = [
    check_functions_are_the_crates,
    check_logs,
    check_roles,
    check_queues,
    check_alarms,
    check_routes,
    check_routes_by_hand,
    check_tables,
    check_settings,
]


def complaints(template, root=ROOT):
    return [complaint for check in CHECKS for complaint in check(template, root)]


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "template.yaml"
    found = complaints(load(path))
    for complaint in found:
        print(f"{path.name}: {complaint}")
    if not found:
        print(f"{path.name}: {len(CHECKS)} checks, nothing wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
