//! Shapes of the service model as JSON schemas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// What answers have on top of the service's, and the shapes of what the service does not have.
fn own_schemas() -> [(&'static str, Value); 9] {
    let partitions = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Partition" } });
    let text = json!({ "type": "string" });
    [
        (
            "Error",
            json!({ "type": "object", "required": ["__type", "Message"],
            "properties": { "__type": text, "Message": text, "Hint": text } }),
        ),
        ("Explain", explain()),
        ("Sweep", json!({ "type": "object", "required": ["run_id"], "properties": { "run_id": text } })),
        ("Lease", lease()),
        ("SweepDecision", decision()),
        ("DroppedTable", dropped_table()),
        (
            "PartitionSpecWithSharedStorageDescriptor",
            json!({ "type": "object", "required": ["StorageDescriptor", "Partitions"],
            "properties": { "StorageDescriptor": { "$ref": "#/components/schemas/StorageDescriptor" }, "Partitions": partitions } }),
        ),
        (
            "PartitionListComposingSpec",
            json!({ "type": "object", "required": ["Partitions"],
            "properties": { "Partitions": partitions } }),
        ),
        (
            "PartitionSpecProxy",
            json!({ "type": "object", "required": ["DatabaseName", "TableName"], "properties": {
            "DatabaseName": text, "TableName": text,
            "RootPath": { "type": "string", "minLength": 1, "maxLength": 255 },
            "PartitionSpecWithSharedSD": { "$ref": "#/components/schemas/PartitionSpecWithSharedStorageDescriptor" },
            "PartitionListComposingSpec": { "$ref": "#/components/schemas/PartitionListComposingSpec" } } }),
        ),
    ]
}

/// What REST takes for an optimizer beside the members of the model.
fn own_rules() -> impl Iterator<Item = (String, Value)> {
    let hours = json!({ "type": "integer", "minimum": 1, "maximum": 876_000 });
    let flag = json!({ "type": "boolean" });
    let rule = move |name: &str| match name {
        "sightings" => json!({ "type": "integer", "minimum": 1, "maximum": 2 }),
        "undoInHours" => json!({ "type": "integer", "minimum": 0, "maximum": 876_000 }),
        name if name.ends_with("InHours") => hours.clone(),
        _ => flag.clone(),
    };
    lakewarden_core::sweep::optimizer::OWN_RULES.into_iter().map(move |name| (name.to_owned(), rule(name)))
}

fn dropped_table() -> Value {
    let (text, moment) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let format = json!({ "type": "string", "enum": ["delta", "iceberg", "other", "unclear"] });
    json!({
        "type": "object",
        "required": ["table_id", "database", "table", "location", "format", "owner", "dropped_ms", "removable_from_ms"],
        "properties": {
            "table_id": text, "database": text, "table": text, "location": text, "format": format,
            "owner": { "type": ["string", "null"] }, "dropped_ms": moment, "removable_from_ms": moment,
        },
    })
}

fn lease() -> Value {
    let (text, moment) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let texts = json!({ "type": "array", "items": text });
    json!({
        "type": "object",
        "required": ["lease_id", "holder", "prefixes", "keys", "granted_ms", "expires_at_ms"],
        "properties": {
            "lease_id": text, "holder": { "type": ["string", "null"] }, "prefixes": texts, "keys": texts,
            "granted_ms": moment, "expires_at_ms": moment, "missing": texts,
        },
    })
}

/// What a sweep would do with one object.
fn decision() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": ["integer", "null"] }));
    json!({
        "type": "object",
        "required": ["key", "exists", "held", "pointer"],
        "properties": {
            "key": text, "exists": { "type": "boolean" }, "pointer": text,
            "held": { "type": "string", "enum": ["no", "referenced", "pending", "spelled_differently"] },
            "decision": { "type": "string", "enum": ["keep", "delete"] }, "reason": text, "because": text,
            "size_bytes": number, "last_modified_ms": number, "age_ms": number, "gate_ms": number, "retention_ms": number,
            "first_seen_ms": number, "candidate_since_ms": number, "findings": { "type": "array", "items": text },
            "kept": { "type": ["object", "null"] },
        },
    })
}

/// The two parts of the model, and what the document came to use of them.
pub(super) struct Schemas {
    shapes: BTreeMap<String, Value>,
    inputs: Map<String, Value>,
    outputs: Map<String, Value>,
    used: BTreeMap<String, Value>,
}

/// What `?explain` adds to a page of partitions.
fn explain() -> Value {
    let ends = json!({ "Low": { "type": "string" }, "High": { "type": "string" } });
    let ranges =
        json!({ "type": "array", "items": { "type": "object", "required": ["Low", "High"], "properties": ends } });
    let mut probe = ends.clone();
    probe["Key"] = json!({ "type": "string" });
    let probes = json!({ "type": "array", "items": { "type": "object", "required": ["Low", "High", "Key"], "properties": probe } });
    let (count, name) = (json!({ "type": "integer", "minimum": 0 }), json!({ "type": ["string", "null"] }));
    let members = ["Way", "Index", "Ranges", "Probes", "Residual", "Values", "Shards", "Queries", "ItemsRead"];
    json!({
        "type": "object",
        "description": "With `explain`: how this page was found, and what that took. Ends of ranges are keys in hexadecimal digits.",
        "required": members,
        "properties": {
            "Way": { "type": "string", "enum": ["all", "values", "index", "ranges"] },
            "Index": name, "Ranges": ranges, "Probes": probes, "Residual": name,
            "Values": count, "Shards": count, "Queries": count, "ItemsRead": count,
        },
    })
}

impl Schemas {
    pub(super) fn load() -> Self {
        let requests: Value =
            serde_json::from_str(include_str!("../../../../../shared/core/src/glue/model.json")).unwrap();
        let answers: Value = serde_json::from_str(include_str!("answers.json")).unwrap();
        let part = |model: &Value, name: &str| model[name].as_object().unwrap().clone();
        let shapes = part(&answers, "shapes").into_iter().chain(part(&requests, "shapes")).collect();
        let used = own_schemas().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
        let mut schemas =
            Self { shapes, inputs: part(&requests, "operations"), outputs: part(&answers, "operations"), used };
        for name in ["Partition", "StorageDescriptor"] {
            schemas.refer(name);
        }
        schemas
    }

    pub(super) fn used(&self) -> &BTreeMap<String, Value> {
        &self.used
    }

    /// Names of an operation's input members.
    pub(super) fn members(&self, operation: &str) -> Vec<String> {
        self.inputs[operation]["members"].as_object().unwrap().keys().cloned().collect()
    }

    pub(super) fn is_required(&self, operation: &str, member: &str) -> bool {
        let required = self.inputs.get(operation).and_then(|input| input["required"].as_array());
        required.is_some_and(|required| required.iter().any(|name| name == member))
    }

    /// The body of a request: the operation's input without the members that the address gives.
    pub(super) fn input(&mut self, operation: &str, given: &BTreeSet<&str>) -> Value {
        let input = self.inputs[operation].clone();
        let mut properties = Map::new();
        for (name, shape) in input["members"].as_object().unwrap() {
            if !given.contains(name.as_str()) {
                properties.insert(name.clone(), self.refer(shape.as_str().unwrap()));
            }
        }
        // The catalog is the account's own unless the body says otherwise.
        let required = input["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|name| name.as_str().is_some_and(|name| !given.contains(name) && name != "CatalogId"));
        let required: Vec<&Value> = required.collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    pub(super) fn output(&mut self, operation: &str) -> Value {
        let specs = json!({ "type": "array", "items": { "$ref": "#/components/schemas/PartitionSpecProxy" } });
        let text = json!({ "type": "string" });
        match operation {
            "GetPartitionSpecs" => {
                return json!({ "type": "object", "required": ["PartitionSpecs"],
                    "properties": { "PartitionSpecs": specs, "NextToken": text } });
            }
            "StartSweep"
            | "RestoreSweep"
            | "GetSweep"
            | "CancelSweep"
            | "StartDroppedTableSweep"
            | "GetDroppedTableSweep"
            | "CancelDroppedTableSweep" => return json!({ "$ref": "#/components/schemas/Sweep" }),
            "ListSweeps" | "GetSweepReport" | "GetDroppedTableSweepReport" => return json!({ "type": "object" }),
            "ListDroppedTables" => {
                let tables = json!({ "type": "array", "items": { "$ref": "#/components/schemas/DroppedTable" } });
                return json!({ "type": "object", "required": ["dropped_tables"],
                    "properties": { "dropped_tables": tables, "next_token": text } });
            }
            "GrantLease" | "RenewLease" => return json!({ "$ref": "#/components/schemas/Lease" }),
            "ExplainSweep" => return json!({ "$ref": "#/components/schemas/SweepDecision" }),
            "ListLeases" => {
                let leases = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Lease" } });
                return json!({ "type": "object", "required": ["leases"],
                    "properties": { "leases": leases, "next_token": text } });
            }
            _ => {}
        }
        let members = self.outputs[operation].as_object().unwrap().clone();
        let properties: Map<String, Value> =
            members.into_iter().map(|(name, shape)| (name, self.refer(shape.as_str().unwrap()))).collect();
        if properties.is_empty() {
            json!({ "type": "object" })
        } else {
            json!({ "type": "object", "properties": properties })
        }
    }

    /// The schema of an input's member, in place: `A.B` is a member of a structure.
    pub(super) fn inline_member(&mut self, operation: &str, member: &str) -> Value {
        let (outer, inner) = member.split_once('.').map_or((member, None), |(outer, inner)| (outer, Some(inner)));
        let outer = self.inputs[operation]["members"][outer].as_str().unwrap();
        let shape = match inner {
            None => outer.to_owned(),
            Some(inner) => self.shapes[outer]["members"][inner].as_str().unwrap().to_owned(),
        };
        let mut schema = self.schema(&shape);
        if let Some(items) = self.shapes[&shape]["member"].as_str().map(str::to_owned) {
            schema["items"] = self.schema(&items);
        }
        schema
    }

    /// A list of an input whose entries may have one more text.
    pub(super) fn list_with(&mut self, operation: &str, member: &str, more: &str) -> Value {
        let list = self.inputs[operation]["members"][member].as_str().unwrap().to_owned();
        let entry = self.shapes[&list]["member"].as_str().unwrap().to_owned();
        let mut schema = self.schema(&list);
        let mut items = self.schema(&entry);
        items["properties"][more] = json!({ "type": "string", "description": "The revision that was read." });
        schema["items"] = items;
        schema
    }

    /// A reference; short for shapes that are a type and nothing else.
    fn refer(&mut self, name: &str) -> Value {
        let schema = if self.used.contains_key(name) { Value::Null } else { self.schema(name) };
        if schema.as_object().is_some_and(|schema| schema.len() <= 1) {
            return schema;
        }
        if !schema.is_null() {
            self.used.insert(name.to_owned(), schema);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    fn schema(&mut self, name: &str) -> Value {
        let shape = self.shapes[name].clone();
        let text = |member: &str| shape[member].as_str().map(str::to_owned);
        let kind = shape["type"].as_str().unwrap();
        let (limits, mut schema) = match kind {
            "string" => (["minLength", "maxLength"], json!({ "type": "string" })),
            "integer" | "long" => (["minimum", "maximum"], json!({ "type": "integer" })),
            "double" => (["minimum", "maximum"], json!({ "type": ["number", "string"] })),
            "timestamp" => (["", ""], json!({ "type": "number" })),
            "boolean" => (["", ""], json!({ "type": "boolean" })),
            "blob" => (["", ""], json!({ "type": "string" })),
            "document" => return json!({}),
            "list" => {
                (["minItems", "maxItems"], json!({ "type": "array", "items": self.refer(&text("member").unwrap()) }))
            }
            "map" => {
                let held = self.refer(&text("value").unwrap());
                (["minProperties", "maxProperties"], json!({ "type": "object", "additionalProperties": held }))
            }
            "structure" => (["", ""], self.structure(name, &shape)),
            other => panic!("{name} is a {other}"),
        };
        for (limit, value) in limits.into_iter().zip([&shape["min"], &shape["max"]]) {
            // A minimum of none says nothing, and Java's maximum of a number neither.
            let says_nothing = value.is_null() || (limit.starts_with("min") && limit != "minimum" && *value == 0);
            if !limit.is_empty() && !says_nothing {
                schema[limit] = value.clone();
            }
        }
        if let Some(values) = shape["enum"].as_array().filter(|values| !values.is_empty()) {
            schema["enum"] = json!(values);
        }
        if let Some(pattern) = text("pattern").map(|pattern| regex(&pattern, text("regex"))) {
            schema["pattern"] = pattern.into();
        }
        schema
    }

    fn structure(&mut self, name: &str, shape: &Value) -> Value {
        // Known before its members are: structures contain themselves.
        self.used.insert(name.to_owned(), Value::Null);
        let members = shape["members"].as_object().unwrap();
        let mut properties: Map<String, Value> =
            members.iter().map(|(member, shape)| (member.clone(), self.refer(shape.as_str().unwrap()))).collect();
        if name == "IcebergOrphanFileDeletionConfiguration" {
            properties.extend(own_rules());
        }
        self.used.remove(name);
        let mut schema = json!({ "type": "object", "properties": properties });
        if let Some(required) = shape["required"].as_array().filter(|required| !required.is_empty()) {
            schema["required"] = json!(required);
        }
        schema
    }
}

/// Patterns of the model, in a spelling that every dialect of regular expressions reads.
fn regex(pattern: &str, source: Option<String>) -> String {
    match pattern {
        "single_line" => r"^[^\u0000-\u0008\u000a-\u001f\ufffe\uffff]*$".to_owned(),
        "multi_line" => r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]*$".to_owned(),
        // Letters, numbers and punctuation of any script: not every dialect can name them.
        "letters_numbers_punctuation" => r"^\S*$".to_owned(),
        "regex" => format!("^(?:{})$", source.unwrap()),
        other => panic!("the pattern {other} has no spelling yet"),
    }
}
